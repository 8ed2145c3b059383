//! The date that a template may ask for: an input, in English whatever the machine's language.

use strata_core::{Error, Result};

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const DAYS: [&str; 7] =
    ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
/// Days before each month of a year that is no leap year.
const BEFORE: [u16; 12] = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334];

/// A date and time of day, as a template shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Date {
    year: u16,
    month: u8,
    day: u8,
    hour: u8,
    minute: u8,
    second: u8,
}

impl Date {
    /// A date at midnight.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a date that the calendar does not have, or before 1 or after 9999.
    pub fn new(year: u16, month: u8, day: u8) -> Result<Self> {
        let date = Self { year, month, day, hour: 0, minute: 0, second: 0 };
        let there = (1..=9999).contains(&year)
            && (1..=12).contains(&month)
            && (1..=date.days_of_month()).contains(&day);
        match there {
            true => Ok(date),
            false => {
                let given = format!("{year:04}-{month:02}-{day:02}");
                Err(Error::invalid("date", given, "a day of the calendar, years 1 to 9999"))
            }
        }
    }

    /// The same day at a time.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a time that a day does not have.
    pub fn at(self, hour: u8, minute: u8, second: u8) -> Result<Self> {
        match hour < 24 && minute < 60 && second < 60 {
            true => Ok(Self { hour, minute, second, ..self }),
            false => {
                let given = format!("{hour:02}:{minute:02}:{second:02}");
                Err(Error::invalid("time", given, "00:00:00 to 23:59:59"))
            }
        }
    }

    /// The date and time of seconds since 1970-01-01 00:00:00, both UTC.
    ///
    /// # Errors
    /// [`Error::Invalid`] after the year 9999.
    pub fn from_unix(seconds: u64) -> Result<Self> {
        let (mut days, rest) = (seconds / 86_400, seconds % 86_400);
        let mut year = 1970u16;
        loop {
            let length = if leap(year) { 366 } else { 365 };
            if days < length {
                break;
            }
            days -= length;
            year += 1;
            if year > 9999 {
                return Err(Error::invalid(
                    "date",
                    format!("{seconds} s"),
                    "before the year 10000",
                ));
            }
        }
        let mut date = Self { year, month: 1, day: 1, hour: 0, minute: 0, second: 0 };
        while days >= u64::from(date.days_of_month()) {
            days -= u64::from(date.days_of_month());
            date.month += 1;
        }
        date.day += days as u8;
        date.at((rest / 3600) as u8, (rest / 60 % 60) as u8, (rest % 60) as u8)
    }

    fn days_of_month(&self) -> u8 {
        match self.month {
            2 if leap(self.year) => 29,
            2 => 28,
            4 | 6 | 9 | 11 => 30,
            _ => 31,
        }
    }

    /// The day of the year, from 1.
    fn day_of_year(&self) -> u16 {
        let leap_day = u16::from(self.month > 2 && leap(self.year));
        BEFORE[usize::from(self.month) - 1] + u16::from(self.day) + leap_day
    }

    /// The day of the week, from 0 for Sunday.
    fn weekday(&self) -> usize {
        let years = u32::from(self.year) - 1;
        let days = years * 365 + years / 4 - years / 100 + years / 400;
        // 1 January of the year 1 was a Monday.
        (days + u32::from(self.day_of_year())) as usize % 7
    }

    /// Writes the date as Python's `strftime` does in the C locale.
    ///
    /// # Errors
    /// The directive that is not known.
    pub(super) fn format(&self, format: &str) -> Result<String, String> {
        let mut out = String::new();
        let mut rest = format.chars();
        let hour12 = (self.hour + 11) % 12 + 1;
        while let Some(character) = rest.next() {
            if character != '%' {
                out.push(character);
                continue;
            }
            let mut directive = rest.next();
            let plain = directive == Some('-');
            if plain {
                directive = rest.next();
            }
            let number = |value: u16, width: usize| match plain {
                true => value.to_string(),
                false => format!("{value:0width$}"),
            };
            let (month, weekday) = (MONTHS[usize::from(self.month) - 1], DAYS[self.weekday()]);
            let text = match directive {
                Some('Y') => number(self.year, 4),
                Some('y') => number(self.year % 100, 2),
                Some('m') => number(self.month.into(), 2),
                Some('d') => number(self.day.into(), 2),
                Some('e') => format!("{:2}", self.day),
                Some('j') => number(self.day_of_year(), 3),
                Some('H') => number(self.hour.into(), 2),
                Some('I') => number(hour12.into(), 2),
                Some('M') => number(self.minute.into(), 2),
                Some('S') => number(self.second.into(), 2),
                Some('p') => if self.hour < 12 { "AM" } else { "PM" }.to_owned(),
                Some('B') => month.to_owned(),
                Some('b' | 'h') => month[..3].to_owned(),
                Some('A') => weekday.to_owned(),
                Some('a') => weekday[..3].to_owned(),
                Some('w') => self.weekday().to_string(),
                Some('F') => format!("{:04}-{:02}-{:02}", self.year, self.month, self.day),
                Some('T') => format!("{:02}:{:02}:{:02}", self.hour, self.minute, self.second),
                Some('%') => "%".to_owned(),
                Some(other) => return Err(format!("%{other}")),
                None => return Err("% at the end".to_owned()),
            };
            out.push_str(&text);
        }
        Ok(out)
    }
}

fn leap(year: u16) -> bool {
    year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_pythons() {
        let date = Date::new(2024, 2, 29).unwrap().at(15, 4, 5).unwrap();
        let all = "%Y-%m-%d %d %B %Y %b %-d %e %A %a %j %H:%M:%S %I %p %y %w %%";
        let expect = "2024-02-29 29 February 2024 Feb 29 29 Thursday Thu 060 15:04:05 03 PM 24 4 %";
        assert_eq!(date.format(all).unwrap(), expect);
        let date = Date::new(2026, 3, 1).unwrap();
        assert_eq!(date.format("%d %-d %e %A %j %-I%p").unwrap(), "01 1  1 Sunday 060 12AM");
        assert_eq!(date.format("%Q").unwrap_err(), "%Q");
    }

    #[test]
    fn unix_seconds() {
        let text = |seconds| Date::from_unix(seconds).unwrap().format("%F %T %a").unwrap();
        assert_eq!(text(0), "1970-01-01 00:00:00 Thu");
        assert_eq!(text(951_782_399), "2000-02-28 23:59:59 Mon");
        assert_eq!(text(951_782_400), "2000-02-29 00:00:00 Tue");
        assert_eq!(text(1_735_689_599), "2024-12-31 23:59:59 Tue");
        assert!(Date::from_unix(u64::MAX).is_err());
    }

    #[test]
    fn days_that_there_are_not() {
        for (year, month, day) in
            [(2023, 2, 29), (1900, 2, 29), (2024, 13, 1), (2024, 4, 31), (0, 1, 1)]
        {
            assert!(Date::new(year, month, day).is_err(), "{year} {month} {day}");
        }
        assert!(Date::new(2000, 2, 29).unwrap().at(24, 0, 0).is_err());
    }
}

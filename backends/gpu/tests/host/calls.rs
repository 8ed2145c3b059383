//! A library that lacks a call is told by its name: each crate lists the calls that it makes.

use std::collections::BTreeSet;

use crate::double::Vendor;
use crate::sources;

/// The names of calls between two texts.
fn between<'a>(text: &'a str, before: &str, after: char, prefix: &str) -> BTreeSet<&'a str> {
    let names = text.split(before).skip(1).filter_map(|rest| {
        let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_')?;
        rest[end..].starts_with(after).then_some(&rest[..end])
    });
    let is_call = |rest: &str| rest.starts_with(char::is_uppercase);
    names.filter(|name| name.strip_prefix(prefix).is_some_and(is_call)).collect()
}

fn entry_points_are_the_calls_that_are_made<V: Vendor>() {
    let folder = sources::folder().join("../../backends").join(V::KIND.name()).join("src");
    let read = |file: &str| std::fs::read_to_string(folder.join(file)).unwrap();
    let (library, driver) = (read("library.rs"), read("driver.rs"));
    let listed = between(&library, " c\"", '"', V::CALLS);
    let mut made = between(&library, "sys::", '(', V::CALLS);
    made.extend(between(&driver, "sys::", '(', V::CALLS));
    assert!(listed.len() > 20, "{listed:?}");
    assert_eq!(listed, made);
}

on_both! { entry_points_are_the_calls_that_are_made }

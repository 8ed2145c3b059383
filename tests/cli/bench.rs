//! `strata bench` and `strata conform`: that they run and what they print, not how fast.

use super::support::strata;

const SMALL: &str = "--backend cpu --runs 2 --tokens 8,16 --experts 4 --k 2 --rows 64 --cols 256";

#[test]
fn every_step_is_measured() {
    for (what, results) in [("quantize", 6), ("map", 2), ("mmq", 16), ("layer", 6), ("routers", 14)]
    {
        let report = strata(&format!("bench {what} {SMALL} --json")).json();
        let bandwidth = report["bandwidth"]["bytes_per_second"].as_f64().unwrap();
        assert!(bandwidth > 1e8, "{report}");
        let list = report["results"].as_array().unwrap();
        assert_eq!(list.len(), results, "{what}");
        for result in list {
            let times = result.as_object().unwrap().iter().filter(|(k, _)| k.ends_with("seconds"));
            for (name, time) in times {
                assert!(time.as_f64().unwrap() > 0.0, "{what}: {name} in {result}");
            }
        }
        let text = strata(&format!("bench {what} {SMALL}")).ok();
        assert!(text.contains("memory: ") && text.contains("x floor"), "{text}");
    }
    let all = strata(&format!("bench mmq {SMALL} --types all --json")).json();
    assert_eq!(all["results"].as_array().unwrap().len(), 50);
}

#[test]
fn conform_says_what_ran() {
    let text = strata("conform --backend cpu --quick --filter map/").ok();
    assert!(text.contains(" 0 differ"), "{text}");
    let report = strata("conform --backend cpu --quick --filter map/ --json").json();
    assert_eq!(report["cases"], report["passed"]);
    assert!(report["bytes"].as_u64().unwrap() > 0);
    strata("conform --filter no-such-case").fails(1, "has \"no-such-case\" in its name");
}

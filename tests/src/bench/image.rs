//! The environment that the image gives its program: what ships is what is measured.

use anyhow::{Context as _, Result, ensure};

use crate::scratch::workspace_root;

/// The variables that the last stage of the Dockerfile sets.
pub(super) fn environment() -> Result<Vec<(String, String)>> {
    let path = workspace_root().join("Dockerfile");
    let text = std::fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
    parse(&text)
}

fn parse(dockerfile: &str) -> Result<Vec<(String, String)>> {
    ensure!(dockerfile.contains("\nFROM "), "the Dockerfile has no stage");
    let last = dockerfile.rsplit("\nFROM ").next().unwrap_or_default();
    last.lines()
        .filter_map(|line| line.strip_prefix("ENV "))
        .flat_map(str::split_whitespace)
        .map(|pair| {
            let (name, value) = pair
                .split_once('=')
                .with_context(|| format!("ENV without `=`: {pair}"))?;
            Ok((name.to_owned(), value.to_owned()))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_last_stage_sets_reaches_the_program() {
        let text = "# x\nFROM a AS build\nENV A=1\nFROM b\nENV B=2 C=3\nRUN true\nENV D=4\n";
        let pairs: Vec<String> = parse(text)
            .unwrap()
            .into_iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        assert_eq!(pairs, ["B=2", "C=3", "D=4"]);
    }

    #[test]
    fn the_image_tells_the_heap_to_give_memory_back() {
        let names: Vec<String> = environment().unwrap().into_iter().map(|(name, _)| name).collect();
        assert!(names.contains(&"MALLOC_ARENA_MAX".to_owned()), "{names:?}");
    }
}

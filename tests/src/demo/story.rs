//! Steps with their times, as lines and as a table.

use std::time::{Duration, Instant};

use anyhow::Result;

#[derive(Debug)]
struct Step {
    chapter: String,
    title: String,
    took: Duration,
    seen: bool,
}

/// What was told so far.
#[derive(Debug, Default)]
pub(super) struct Story {
    chapter: String,
    steps: Vec<Step>,
}

impl Story {
    pub(super) fn new() -> Self {
        Self::default()
    }

    /// Begins a chapter.
    pub(super) fn chapter(&mut self, title: &str) {
        title.clone_into(&mut self.chapter);
        println!("\n== {title}");
    }

    /// Does something, and tells whether it was seen, what was seen and how long it took. `None` where it was not.
    pub(super) async fn step<T: std::fmt::Display>(
        &mut self,
        title: &str,
        act: impl AsyncFnOnce() -> Result<T>,
    ) -> Option<T> {
        let begun = Instant::now();
        let outcome = act().await;
        let took = begun.elapsed();
        let seconds = took.as_secs_f64();
        match &outcome {
            Ok(seen) => println!("  ok   {seconds:7.2} s  {title}: {seen}"),
            Err(error) => println!("  FAIL {seconds:7.2} s  {title}: {error:#}"),
        }
        let (chapter, title, seen) = (self.chapter.clone(), title.to_owned(), outcome.is_ok());
        self.steps.push(Step {
            chapter,
            title,
            took,
            seen,
        });
        outcome.ok()
    }

    /// Prints the table. True when everything was seen.
    pub(super) fn table(&self) -> bool {
        println!("\n{:4}  {:>9}  step", "seen", "time");
        let mut chapter = "";
        for step in &self.steps {
            if step.chapter != chapter {
                chapter = &step.chapter;
                println!("{:17}{chapter}", "");
            }
            let seen = if step.seen { "yes" } else { "NO" };
            println!("{seen:4}  {:7.2} s    {}", step.took.as_secs_f64(), step.title);
        }
        let seen = self.steps.iter().filter(|step| step.seen).count();
        let total: Duration = self.steps.iter().map(|step| step.took).sum();
        println!(
            "\n{seen} of {} seen, in {:.1} s",
            self.steps.len(),
            total.as_secs_f64()
        );
        seen == self.steps.len()
    }
}

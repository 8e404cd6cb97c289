//! A progress bar with rate and remaining time, for runs that take longer than a moment.

use crate::args::When;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use stead::{Observer, Snapshot};

/// Runs shorter than this show nothing.
const PATIENCE_S: f64 = 0.5;

pub struct Bar {
    bar: ProgressBar,
}

impl Bar {
    /// A bar on the error stream, if it is wanted there.
    pub fn new(when: When) -> Option<Bar> {
        let wanted = match when {
            When::Always => true,
            When::Never => false,
            When::Auto => std::io::stderr().is_terminal(),
        };
        wanted.then(|| {
            let target = if when == When::Always && !std::io::stderr().is_terminal() {
                // Into a file or pipe there is no redrawing: one line a pass, see `progress`.
                ProgressDrawTarget::hidden()
            } else {
                ProgressDrawTarget::stderr_with_hz(10)
            };
            let bar = ProgressBar::with_draw_target(None, target);
            let style = "{prefix}{wide_bar:.cyan/dim} {bytes}/{total_bytes}  {binary_bytes_per_sec}  {eta} left";
            if let Ok(style) = ProgressStyle::with_template(style) {
                bar.set_style(style);
            }
            Bar { bar }
        })
    }

    pub fn clear(&self) {
        self.bar.finish_and_clear();
    }
}

impl Observer for Bar {
    fn progress(&self, s: &Snapshot) {
        if self.bar.is_hidden() {
            use std::io::Write;
            let percent = s.bytes.saturating_mul(100) / s.total_bytes.max(1);
            let rate = stead::units::format_size((s.bytes as f64 / s.seconds.max(1e-9)) as u64);
            let left = s.seconds / (s.bytes.max(1) as f64) * (s.total_bytes - s.bytes) as f64;
            // An error stream that takes no text is no reason to stop.
            let _ = writeln!(
                std::io::stderr(),
                "pass {}: {percent} %, {rate}/s, {} left",
                s.pass,
                stead::units::format_seconds(left)
            );
            return;
        }
        if s.seconds < PATIENCE_S && s.pass == 1 {
            return;
        }
        if s.pass > 1 {
            self.bar.set_prefix(format!("pass {} ", s.pass));
        }
        self.bar.set_length(s.total_bytes);
        self.bar.set_position(s.bytes);
    }
}

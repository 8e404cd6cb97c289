//! A snapshot of particles (Tipsy) that tasks load, each its own part, as arrays. Where records begin, in which byte
//! order and precision they are: the library knows.

#![allow(clippy::print_stdout)]

use stead::Result;
use stead::read::Options;
use stead::tipsy::{self, Species};

const TASKS: usize = 64;

fn main() -> Result<()> {
    let path = std::env::args().nth(1).unwrap_or_else(|| "galaxy.tipsy".into());
    let snapshot = tipsy::open(path, &Options::default())?;
    println!("time {}", snapshot.header().time);
    for species in Species::ALL {
        let mut sum = [0.0; 4];
        for task in 0..TASKS {
            // Any thread may do this.
            let share = snapshot.load(species, task, TASKS, &["mass", "x", "y", "z"])?;
            for i in 0..share.len() {
                let value = |column: usize| share.columns[column].1.get(i).unwrap_or(f64::NAN);
                sum[0] += value(0);
                (1..4).for_each(|axis| sum[axis] += value(0) * value(axis));
            }
        }
        let [mass, x, y, z] = sum;
        let (x, y, z) = (x / mass, y / mass, z / mass);
        let n = snapshot.header().count(species);
        let name = species.name();
        println!("{name:4} {n} particles, mass {mass:.6}, centre {x:.6} {y:.6} {z:.6}");
    }
    snapshot.close()
}

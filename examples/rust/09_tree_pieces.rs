//! Tree pieces: many more tasks than threads, each with its own particles of a snapshot (Tipsy), as codes in the manner
//! of Charm++ have them. A piece asks for its share and returns; its thread goes on with pieces whose particles are there,
//! and waits only when no piece has anything to do.

#![allow(clippy::print_stdout)]

use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, Sender, channel};
use stead::read::{Options, View};
use stead::tipsy::{self, Particles, Snapshot, Species};
use stead::{Error, Result};

const PIECES: usize = 1024;
const THREADS: usize = 2;

/// Of each species: how many particles, their mass, and mass times position.
type Moments = [[f64; 5]; 3];

/// The particles of a piece have come, of one species.
struct Arrival {
    piece: usize,
    species: Species,
    records: Result<View>,
}

/// Some particles of a piece, to be halved along an axis.
struct Build {
    particles: Vec<[f64; 3]>,
    axis: usize,
}

/// One thread with its share of the pieces.
struct Scheduler<'a> {
    snapshot: &'a Snapshot,
    reads: (Sender<Arrival>, Receiver<Arrival>),
    under_way: usize,
    /// Of each piece of this thread: the particles so far, and how many species are still to come.
    pieces: Vec<(Vec<[f64; 3]>, usize)>,
    ready: VecDeque<Build>,
    sum: Moments,
}

impl Scheduler<'_> {
    /// Asks for the particles of a piece, of all species.
    fn load(&mut self, piece: usize) -> Result<()> {
        for species in Species::ALL {
            let part = self.snapshot.header().part(species, piece, PIECES)?;
            let send = self.reads.0.clone();
            let read = self.snapshot.session().read(part.offset, part.bytes as usize);
            read.then(move |records| drop(send.send(Arrival { piece, species, records })));
            self.under_way += 1;
        }
        Ok(())
    }

    fn take(&mut self, Arrival { piece, species, records }: Arrival) -> Result<()> {
        self.under_way -= 1;
        let view = records?;
        let mut particles =
            Particles::new(self.snapshot.header(), species, 0, &["mass", "x", "y", "z"])?;
        particles.add(&view)?;
        view.check()?;
        let (mine, left) = &mut self.pieces[piece / THREADS];
        let sum = &mut self.sum[species as usize];
        for i in 0..particles.len() {
            let value = |column: usize| particles.columns[column].1.get(i).unwrap_or(f64::NAN);
            let (mass, position) = (value(0), [value(1), value(2), value(3)]);
            sum[0] += 1.0;
            sum[1] += mass;
            (0..3).for_each(|axis| sum[axis + 2] += mass * position[axis]);
            mine.push(position);
        }
        *left -= 1;
        if *left == 0 {
            self.ready.push_back(Build { particles: std::mem::take(mine), axis: 0 });
        }
        Ok(())
    }

    /// One step of the tree: halves particles, until a bucket has eight.
    fn build(&mut self, Build { mut particles, axis }: Build) {
        if particles.len() > 8 {
            let middle = particles.len() / 2;
            particles.select_nth_unstable_by(middle, |a, b| a[axis].total_cmp(&b[axis]));
            let axis = (axis + 1) % 3;
            self.ready.push_back(Build { particles: particles.split_off(middle), axis });
            self.ready.push_back(Build { particles, axis });
        }
    }

    /// Until nothing is under way and nothing is to be done.
    fn run(mut self, first: usize) -> Result<Moments> {
        for piece in (first..PIECES).step_by(THREADS) {
            self.load(piece)?;
        }
        while self.under_way > 0 || !self.ready.is_empty() {
            if self.ready.is_empty() {
                let arrival = self.reads.1.recv();
                self.take(arrival.map_err(|_| Error::usage("a read was dropped"))?)?;
            }
            while let Ok(arrival) = self.reads.1.try_recv() {
                self.take(arrival)?;
            }
            if let Some(next) = self.ready.pop_front() {
                self.build(next);
            }
        }
        Ok(self.sum)
    }
}

fn main() -> Result<()> {
    let path = std::env::args().nth(1).unwrap_or_else(|| "galaxy.tipsy".into());
    let snapshot = tipsy::open(path, &Options::default())?;
    let sums: Vec<Result<Moments>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let scheduler = Scheduler {
                    snapshot: &snapshot,
                    reads: channel(),
                    under_way: 0,
                    pieces: vec![(Vec::new(), Species::ALL.len()); PIECES.div_ceil(THREADS)],
                    ready: VecDeque::new(),
                    sum: Moments::default(),
                };
                scope.spawn(move || scheduler.run(thread))
            })
            .collect();
        let failed = || Err(Error::usage("a thread failed"));
        threads.into_iter().map(|t| t.join().unwrap_or_else(|_| failed())).collect()
    });
    let mut all = Moments::default();
    for sum in sums {
        let sum = sum?;
        (0..3).for_each(|k| (0..5).for_each(|i| all[k][i] += sum[k][i]));
    }
    println!("{PIECES} pieces on {THREADS} threads");
    for (species, [n, mass, x, y, z]) in Species::ALL.into_iter().zip(all) {
        let (x, y, z) = (x / mass, y / mass, z / mass);
        let name = species.name();
        println!("{name:4} {n} particles, mass {mass:.6}, centre {x:.6} {y:.6} {z:.6}");
    }
    snapshot.close()
}

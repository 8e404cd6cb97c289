//! What is computed wherever the data lie: files of every format, how they are opened, and every kernel.

use super::{npy, request, table, wave, write};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use stead::kernels::{Block, Context, Kernel, Needs, Own, Step};
use stead::tipsy::{Header, Species};
use stead::{Dataset, OpenOptions, Request, Result, Value};
use stead_core::{ByteOrder, DType};

/// Files, how they are opened, and what is asked of them.
pub struct Case {
    pub files: Vec<(&'static str, Vec<u8>)>,
    pub options: OpenOptions,
    /// In outputs, `OUT/` stands for a folder.
    requests: Vec<Request>,
    /// Lengths of stripes that are worth trying.
    pub stripes: &'static [u64],
}

/// A request, and the file that it writes.
pub struct Ask {
    pub request: Request,
    pub output: Option<PathBuf>,
    /// What it writes is made of records, in their order.
    pub maps: bool,
    /// It wants the data in their order, which ranks may not have.
    pub ordered: bool,
    /// It looks at nothing but numbers, which can be sent in place of text.
    pub columns: bool,
}

impl Case {
    fn new(name: &'static str, bytes: impl Into<Vec<u8>>, stripes: &'static [u64]) -> Case {
        let (options, requests) = (OpenOptions::default(), Vec::new());
        Case { files: vec![(name, bytes.into())], options, requests, stripes }
    }

    fn and(mut self, name: &'static str, bytes: impl Into<Vec<u8>>) -> Case {
        self.files.push((name, bytes.into()));
        self
    }

    fn with(mut self, options: &[(&str, &str)]) -> Case {
        let set =
            |(name, value): &(&str, &str)| stead::options::set(&mut self.options, name, value);
        options.iter().try_for_each(set).expect("options");
        self
    }

    fn asks(mut self, kernels: &[&str]) -> Case {
        self.requests.push(request(kernels));
        self
    }

    fn asks_where(mut self, filter: &str, kernels: &[&str]) -> Case {
        self.requests.push(Request { filter: Some(filter.into()), ..request(kernels) });
        self
    }

    fn asks_by(mut self, by: &str, filter: &str, kernels: &[&str]) -> Case {
        let by = by.split(',').map(str::to_owned).collect();
        self.requests.push(Request { by, filter: Some(filter.into()), ..request(kernels) });
        self
    }

    /// In so little memory that outputs wait on disk.
    fn asks_in(mut self, memory: u64, kernels: &[&str]) -> Case {
        self.requests.push(Request { memory, ..request(kernels) });
        self
    }

    /// A kernel of the program's own beside those of the first request, and one of groups.
    fn asks_own(mut self, by: &str) -> Case {
        let own = || vec![Own::new("bits", Bits::new), Own::new("order", InOrder::new)];
        self.requests
            .push(Request { own: vec![Own::new("bits", Bits::new)], ..request(&["lines"]) });
        self.requests.push(Request { own: own(), ..request(&["rows"]) });
        if !by.is_empty() {
            self.requests.push(Request { own: own(), by: vec![by.into()], ..request(&[]) });
        }
        self
    }

    /// The files as they are, in a folder.
    pub fn write(&self, dir: &Path) -> Vec<String> {
        let write = |(name, bytes): &(&str, Vec<u8>)| write(dir, name, bytes);
        self.files.iter().map(|f| write(f).to_string_lossy().into_owned()).collect()
    }

    pub fn open(&self, inputs: &[String]) -> Dataset {
        Dataset::open(inputs, &self.options).expect("open")
    }

    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|(_, bytes)| bytes.len() as u64).sum()
    }

    pub fn compressed(&self) -> bool {
        self.files.iter().any(|(name, _)| name.ends_with(".gz") || name.ends_with(".zst"))
    }

    /// What is asked, with small extents and outputs that go to this folder.
    pub fn within(&self, dir: &Path) -> Vec<Ask> {
        let folder = format!("{}/", dir.display());
        let ask = |r: &Request| {
            let kernels: Vec<String> =
                r.kernels.iter().map(|k| k.replace("OUT/", &folder)).collect();
            let output = kernels.iter().find_map(|k| Some(PathBuf::from(k.split_once("out=")?.1)));
            // A picture is written as a whole.
            let maps = output.as_ref().is_some_and(|o| o.extension().is_none_or(|e| e != "png"));
            let ordered = r.own.iter().any(|own| own.name() == "order");
            let request = Request { kernels, threads: 2, chunk: 100, ..r.clone() };
            let number = |k: &String| NUMERIC.contains(&k.split(':').next().unwrap_or(k));
            let columns = r.own.is_empty() && r.by.is_empty() && r.kernels.iter().all(number);
            Ask { request, output, maps, ordered, columns }
        };
        self.requests.iter().map(ask).collect()
    }
}

/// A kernel of a program: a sum over the bits of all values, and another one in a second pass that depends on it.
struct Bits {
    numbers: Vec<usize>,
    texts: Vec<usize>,
    first: Option<u64>,
}

impl Bits {
    fn new(context: &Context<'_>) -> Result<Bits> {
        let numbers: Vec<usize> = context.schema.numbers();
        let texts = (0..context.schema.columns.len()).filter(|i| !numbers.contains(i)).collect();
        Ok(Bits { numbers, texts, first: None })
    }
}

impl Kernel for Bits {
    type State = u64;

    fn needs(&self) -> Needs {
        let (numbers, texts) = (self.numbers.clone(), self.texts.clone());
        Needs { rows: true, numbers, texts, ..Needs::default() }
    }

    fn init(&self) -> u64 {
        0
    }

    fn update(&self, state: &mut u64, block: &Block<'_>) -> Result<()> {
        let odd = self.first.unwrap_or(1) | 1;
        let mut add = |place: usize, bits: u64| {
            let mixed = (bits ^ place as u64).wrapping_mul(odd);
            *state = state.wrapping_add(mixed ^ mixed >> 29);
        };
        for c in &self.numbers {
            block.numbers(*c).iter().for_each(|x| add(*c, x.to_bits()));
        }
        for c in &self.texts {
            let texts = block.texts(*c).expect("texts");
            for i in 0..block.rows {
                let word = |h: u64, b: &u8| h.wrapping_mul(131).wrapping_add(u64::from(*b) + 1);
                add(*c, texts.get(i).map_or(7, |t| t.iter().fold(0, word)));
            }
        }
        Ok(())
    }

    fn merge(&self, state: &mut u64, other: u64) -> Result<()> {
        *state = state.wrapping_add(other);
        Ok(())
    }

    fn finish(&self, state: u64) -> Result<Step> {
        if self.first.is_some() {
            return Ok(Step::Done(Value::Int(state)));
        }
        let (numbers, texts) = (self.numbers.clone(), self.texts.clone());
        Ok(Step::Next(Arc::new(Bits { numbers, texts, first: Some(state) })))
    }
}

/// A kernel whose merging does not commute: a polynomial over the bits of all values in the order of records.
struct InOrder(Bits);

impl InOrder {
    fn new(context: &Context<'_>) -> Result<InOrder> {
        Bits::new(context).map(InOrder)
    }
}

/// What one more value multiplies by.
const STEP: u64 = 0x9E37_79B9_7F4A_7C15;

impl Kernel for InOrder {
    /// The sum, and what it multiplies what stands before it by.
    type State = (u64, u64);

    fn needs(&self) -> Needs {
        Needs { order: true, ..self.0.needs() }
    }

    fn init(&self) -> (u64, u64) {
        (0, 1)
    }

    fn update(&self, state: &mut (u64, u64), block: &Block<'_>) -> Result<()> {
        for i in 0..block.rows {
            let numbers = self.0.numbers.iter().map(|c| block.numbers(*c)[i].to_bits());
            let texts = self.0.texts.iter().map(|c| {
                let text = block.texts(*c).expect("texts").get(i);
                text.map_or(7, |t| t.iter().fold(1, |h, b| h * 131 % 0xFFFF_FFFB + u64::from(*b)))
            });
            for bits in numbers.chain(texts).chain([block.rows.min(1) as u64]) {
                self.merge(state, (bits, STEP))?;
            }
        }
        Ok(())
    }

    fn merge(&self, state: &mut (u64, u64), (sum, factor): (u64, u64)) -> Result<()> {
        state.0 = state.0.wrapping_mul(factor).wrapping_add(sum);
        state.1 = state.1.wrapping_mul(factor);
        Ok(())
    }

    fn finish(&self, (sum, _): (u64, u64)) -> Result<Step> {
        Ok(Step::Done(Value::Int(sum)))
    }
}

/// Kernels that look at numbers alone.
const NUMERIC: [&str; 10] =
    ["rows", "count", "sum", "mean", "var", "std", "min", "max", "hist", "quantile"];

/// What is asked of a column `x`, and of all bytes.
const NUMBERS: [&str; 20] = [
    "lines",
    "rows",
    "count:x",
    "sum:x",
    "mean:x",
    "var:x,ddof=0",
    "std:x",
    "min:x",
    "max:x",
    "hist:x",
    "hist:x,bins=4,min=-5,max=50",
    "quantile:x,q=0.1;0.5;0.99",
    "quantile:x,exact",
    "digits",
    "entropy",
    "gram:id,x",
    "gram:id,x,exact",
    "grep:'1'",
    "kmeans:id,k=3,seed=3",
    "mean:*",
];

/// Delimited text.
pub fn tables() -> Vec<Case> {
    let more = [
        "hist:id,bins=7",
        "grep:'lines'",
        "grep:'said|1\\d',lines,max=9",
        "grep:'SAID \"',fixed,ignore_case,lines",
        "grep:'plain',invert",
        "kmeans:id,k=3,init=random,seed=4",
        "kmeans:id,k=2,init=first",
        "kmeans:x,k=2,rounds=4",
    ];
    let all: Vec<&str> = NUMBERS.into_iter().chain(more).collect();
    let quoted = Case::new("t.csv", table(60), &[1, 3, 20, 333, 1 << 20])
        .asks(&all)
        .asks_where("x > 3 and group != 'g2'", &all)
        .asks_by("group", "x > 3 or id < 30", &all)
        .asks(&["lines", "entropy", "digits"])
        .asks_where("x > 3 or id < 30", &["rows", "sum:x", "quantile:x,q=0.1;0.9", "std:id"])
        .asks_own("group");
    // NaN, infinities, zeros of both signs, and sums beyond what doubles can be.
    let odd = ["NaN", "inf", "-inf", "-0.0", "0", "1e308", "1e308", "5e-324", "NA", "-7.5", "2"];
    let rows = (0..66).map(|i: usize| format!("{i},{},{}\n", odd[i * 7 % 11], i % 4));
    let numbers: String = std::iter::once("id,x,y\n".to_owned()).chain(rows).collect();
    let odd = Case::new("odd.csv", numbers, &[1, 7, 200])
        .with(&[("missing", "NA")])
        .asks(&["rows", "count:x", "var:x", "min:x", "hist:x,bins=5", "quantile:x,exact"])
        .asks(&NUMBERS)
        .asks_where("x < 2 or y == 3", &NUMBERS)
        .asks_by("x", "id > 5", &["rows", "sum:id", "min:x"])
        .asks_by("y", "id > 5", &NUMBERS)
        .asks(&["kmeans:x,y,k=3,init=first", "mean:x,y", "max:x,y", "std:*"])
        .asks_own("x");
    // Rows without names, and lines that are none.
    let row = |i: usize| match i % 6 {
        0 => format!("# {i} rows\n"),
        _ => format!("{}\tw{}\t{i}.5\n", i * 13 % 17, i % 2),
    };
    let tsv = Case::new("t.tsv", (0..80).map(row).collect::<String>(), &[1, 11, 300])
        .with(&[("type", "tsv"), ("comment", "#"), ("header", "no"), ("names", "a,b,c")])
        .asks(&["rows", "lines", "sum:a", "std:c", "quantile:c,exact", "grep:'w1'", "digits"])
        .asks_by("b", "a != 3", &["rows", "lines", "mean:c", "max:a", "kmeans:c,k=2,init=first"])
        .asks_own("b");
    let row = |i: usize| format!("{i};\"{};\r\n", if i.is_multiple_of(3) { "" } else { "a\"" });
    let bare = Case::new("bare.csv", (0..70).map(row).collect::<String>(), &[1, 4, 90])
        .with(&[("delimiter", ";"), ("header", "no"), ("quote", "none")])
        .with(&[("column-type", "1=text")])
        .asks(&["rows", "lines", "entropy", "sum:0", "var:0", "hist:0,bins=3", "grep:'a',invert"])
        .asks_by("1", "$0 > 7", &["rows", "sum:0", "digits"])
        .asks_own("1");
    let several = Case::new("a.csv", table(30), &[2, 50, 4000])
        .and("b.csv", table(0))
        .and("c.csv", table(17).trim_end())
        .asks(&["rows", "lines", "mean:x", "grep:'lines',lines", "kmeans:id,k=2,init=first"])
        .asks_by("group,id", "x > 3", &["rows", "entropy", "std:x"])
        .asks_own("group");
    let none = Case::new("none.csv", table(0), &[1, 5, 100])
        .asks(&["rows", "lines", "mean:x", "min:x", "hist:x", "quantile:x", "digits", "gram:id,x"])
        .asks_by("group", "x > 3", &["rows", "sum:x", "kmeans:id,k=2"])
        .asks_own("group");
    vec![quoted, odd, tsv, bare, several, none]
}

/// Lines of text, and nothing at all.
pub fn lines() -> Vec<Case> {
    let kernels = [
        "lines",
        "rows",
        "entropy",
        "grep:'7',lines",
        "grep:'LINE 1',ignore_case,invert,lines,max=5",
        "digits",
    ];
    let lines: String = (0..90).map(|i| format!("line {i}\r\n")).collect();
    let marked = format!("\u{feff}{lines}the end");
    vec![
        Case::new("t.log", lines.clone(), &[1, 3, 50, 5000]).asks(&kernels).asks_own(""),
        // The mark is in no line, whichever extents its bytes are in.
        Case::new("u.log", marked, &[1, 2, 64])
            .asks(&kernels)
            .asks(&["grep:'^line 0',lines", "grep:'7',invert,lines", "grep:''"])
            .asks_own(""),
        Case::new("mark.log", "\u{feff}", &[1, 2]).with(&[("type", "lines")]).asks(&[
            "lines",
            "rows",
            "grep:'',lines",
            "grep:'x',invert",
            "entropy",
        ]),
        Case::new("none.log", "", &[1, 64]).with(&[("type", "lines")]).asks(&kernels),
        Case::new("a.log", "", &[1, 64])
            .and("b.log", lines)
            .and("c.log", "no end")
            .and("d.log", "\n")
            .asks(&kernels),
    ]
}

/// Arrays with and without a header, of which one dimension or two are records.
pub fn arrays() -> Vec<Case> {
    let rows = [
        "rows",
        "lines",
        "mean:1",
        "gram:*",
        "gram:*,exact",
        "kmeans:k=3,seed=1",
        "kmeans:k=3,init=random,seed=9",
        "entropy",
        "std:*",
        "max:2",
        "hist:1",
    ];
    let columns = ["rows", "mean:1", "gram:*", "kmeans:k=3,seed=1", "std:*"];
    let elements = ["rows", "sum:value", "quantile:value", "digits", "grep:'\\x00',invert"];
    let float = |i: u32| match i % 13 {
        0 => f32::NAN,
        1 => f32::INFINITY,
        2 => -0.0,
        3 => f32::MIN_POSITIVE / 2.0,
        _ => (i * 37 % 101) as f32 / 7.0,
    };
    let big: Vec<u8> =
        b"skip!".iter().copied().chain((0..720).flat_map(|i| float(i).to_be_bytes())).collect();
    // Beyond 2^53: rounded, and counted.
    let integers: Vec<u8> =
        (0..300i64).flat_map(|i| i.wrapping_mul(0x0123_4567_89ab_cdef).to_le_bytes()).collect();
    let small: Vec<u8> = (0..501u16).flat_map(|i| i.wrapping_mul(641).to_be_bytes()).collect();
    vec![
        Case::new("m.npy", npy("200, 3", "False", wave(600)), &[3, 64, 1000, 1 << 20])
            .asks(&rows)
            .asks_where("$0 > 3", &rows)
            .asks_by("0", "$1 > 3", &["rows", "sum:*", "gram:*", "kmeans:k=2,init=first", "digits"])
            .asks_own("0"),
        // Columns lie apart, and the bytes are looked at by themselves.
        Case::new("f.npy", npy("200, 3", "True", wave(600)), &[3, 1000])
            .asks(&columns)
            .asks_where("$0 > 3", &columns)
            .asks(&["entropy", "sum:2"])
            .asks_own(""),
        Case::new("v.npy", npy("500,", "False", wave(500)), &[1, 8, 300])
            .asks(&elements)
            .asks_own("value"),
        Case::new("big.bin", big, &[1, 5, 130])
            .with(&[("type", "raw"), ("dtype", "f32"), ("byte-order", "big")])
            .with(&[("shape", "180,4"), ("skip", "5")])
            .asks(&["count:*", "sum:*", "var:*", "min:*", "max:*", "hist:2", "quantile:3,exact"])
            .asks(&["gram:*", "gram:*,exact", "kmeans:k=4,seed=1", "kmeans:0,3,k=2,init=first"])
            .asks_where("$3 > 2", &["rows", "mean:*", "entropy", "gram:*", "gram:0,1"])
            .asks_own("2"),
        Case::new(
            "columns.bin",
            (0..480).flat_map(|i| float(i).to_le_bytes()).collect::<Vec<u8>>(),
            &[1, 9, 700],
        )
        .with(&[("type", "raw"), ("dtype", "f32"), ("shape", "120,4"), ("order", "f")])
        .asks(&["sum:*", "std:*", "gram:*", "kmeans:k=4,init=first", "rows"])
        .asks_own("1"),
        Case::new("i.bin", integers, &[3, 64])
            .with(&[("dtype", "i64")])
            .asks(&[
                "rows",
                "sum:value",
                "min:value",
                "quantile:value,exact",
                "hist:value",
                "lines",
            ])
            .asks_own(""),
        Case::new("u.bin", small, &[1, 3, 64])
            .and("w.bin", vec![7; 20])
            .with(&[("dtype", "u16"), ("byte-order", "big")])
            .asks(&["rows", "sum:value", "entropy", "grep:'\\x07',lines,max=3", "mean:value"])
            .asks_by("value", "value < 9000", &["rows"]),
    ]
}

/// Arrays that are drawn.
pub fn volumes() -> Vec<Case> {
    let picture = "render:width=24,height=24,out=OUT/picture.png";
    let flat = "render:width=20,height=17,shading=none,min=1,max=12,colors=hot,background=white,\
                projection=perspective,out=OUT/flat.png";
    let holes = || {
        wave(420).enumerate().map(|(i, x)| match i % 29 {
            3 => f64::NAN,
            7 => f64::NEG_INFINITY,
            _ => x,
        })
    };
    let raw: Vec<u8> = wave(420).flat_map(|x| (x as f32).to_le_bytes()).collect();
    let mut cases = Vec::new();
    for (c, f) in [("False", "True"), ("True", "False")] {
        cases.push(
            Case::new("c.npy", npy("12, 5, 7", c, wave(420)), &[5, 700, 1 << 20])
                .asks(&[picture, "hist:value,bins=5"])
                .asks(&[flat]),
        );
        cases.push(
            Case::new("holes.npy", npy("12, 5, 7", f, holes()), &[11, 900])
                .asks(&[flat, "min:value", "count:value"])
                .asks(&[picture]),
        );
    }
    cases.push(
        Case::new("v.raw", raw, &[5, 700])
            .with(&[("dtype", "f32"), ("shape", "12,5,7")])
            .asks(&[picture, "sum:value"]),
    );
    cases.push(Case::new("none.npy", npy("0, 5, 7", "False", wave(0)), &[5, 700]).asks(&[flat]));
    cases
}

/// Particles of all species, or of one.
fn particles(counts: [u64; 3], order: ByteOrder, positions: DType) -> Vec<u8> {
    let header = Header::new(0.5, counts, order, positions, DType::F32).expect("header");
    let mut out = header.encode();
    for species in Species::ALL {
        for row in 0..header.count(species) {
            for (i, field) in header.fields(species).iter().enumerate() {
                let x = (row * 31 + i as u64 * 7) % 103;
                let x = x as f32 * 0.25 - 5.0;
                let mut bytes = match field.dtype {
                    DType::F64 => f64::from(x).to_le_bytes().to_vec(),
                    _ => x.to_le_bytes().to_vec(),
                };
                if order == ByteOrder::Big {
                    bytes.reverse();
                }
                out.extend(bytes);
            }
        }
    }
    out
}

/// Records of one length, and particles.
pub fn records() -> Vec<Case> {
    let bytes: Vec<u8> = (0..700u32).map(|i| (i * 37 % 251) as u8).collect();
    let kernels = [
        "rows",
        "lines",
        "digits",
        "entropy",
        "grep:'(?-u:\\x25)'",
        "grep:'%J',fixed,lines",
        "grep:'(?s-u)^.*\\x0a.*$',invert",
    ];
    let of_one =
        ["rows", "lines", "entropy", "sum:mass", "std:*", "gram:x,y,z", "kmeans:x,y,k=3,seed=1"];
    let of_all = [
        "rows",
        "lines",
        "entropy",
        "sum:mass",
        "mean:temp",
        "quantile:gas.rho,exact",
        "max:star.tform",
        "kmeans:x,y,z,k=3,seed=2",
        "gram:x,y",
    ];
    let little = particles([23, 31, 7], ByteOrder::Little, DType::F64);
    vec![
        Case::new("r.dat", bytes.clone(), &[1, 3, 64])
            .with(&[("record-length", "7")])
            .asks(&kernels)
            .asks_own(""),
        Case::new("s.dat", bytes[..5 + 69 * 7].to_vec(), &[2, 50])
            .and("t.dat", bytes[..5].to_vec())
            .and("u.dat", bytes[..5 + 7].to_vec())
            .with(&[("record-length", "7"), ("skip", "5")])
            .asks(&kernels),
        Case::new("p.tipsy", particles([23, 31, 7], ByteOrder::Big, DType::F32), &[1, 30, 900])
            .with(&[("type", "tipsy")])
            .asks(&of_all)
            .asks_by("species", "x > -3", &of_all)
            .asks(&["sum:dark.x", "mean:gas.rho"])
            .asks_own("species"),
        Case::new("q.tipsy", little, &[3, 700])
            .with(&[("type", "tipsy"), ("species", "dark")])
            .asks(&of_one)
            .asks_where("y > 0", &of_one)
            .asks_own(""),
    ]
}

/// Text that is compressed as a whole, or in frames.
pub fn compressed() -> Vec<Case> {
    let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gz.write_all(table(50).as_bytes()).expect("memory");
    let gz = gz.finish().expect("memory");
    let frame = |piece: &[u8]| zstd::encode_all(piece, 3).expect("frame");
    let frames: Vec<u8> = table(50).as_bytes().chunks(300).flat_map(frame).collect();
    let kernels = ["rows", "mean:x", "lines", "grep:'lines'", "entropy", "kmeans:id,k=2"];
    let by = ["rows", "sum:x", "digits"];
    vec![
        Case::new("t.csv.gz", gz.clone(), &[3, 100, 1 << 20])
            .asks(&kernels)
            .asks_by("group", "id > 4", &by)
            .asks_own("group"),
        Case::new("t.csv.zst", frames, &[3, 100, 1 << 20])
            .and("u.csv", table(9))
            .and("v.csv.gz", gz)
            .asks(&kernels)
            .asks_by("group", "id > 4", &by),
    ]
}

/// Kernels that write what they make of records.
pub fn outputs() -> Vec<Case> {
    let lines = "grep:'said|1\\d',out=OUT/found.csv";
    let table_of = |rows| {
        Case::new("t.csv", table(rows), &[1, 3, 20, 333, 1 << 20])
            .with(&[("column-type", "group=text")])
            .asks(&[lines])
            .asks_where("x > 3 and group != 'g2'", &[lines])
            .asks(&["grep:'SAID',fixed,ignore_case,invert,out=OUT/other.csv"])
            .asks(&["grep:'nowhere to be found',out=OUT/none.csv"])
            .asks(&["normalize:x,id,zscore,out=OUT/scaled.csv"])
            .asks_where("id > 7", &["normalize:id,x,l2,out=OUT/scaled.csv", "rows"])
            .asks(&["normalize:x,out=OUT/scaled.npy"])
            .asks_in(64 << 20, &["normalize:x,id,zscore,out=OUT/small.csv"])
    };
    let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gz.write_all(table(50).as_bytes()).expect("memory");
    let gz = gz.finish().expect("memory");
    let rows = "normalize:*,out=OUT/m.out.npy";
    let records: Vec<u8> = (0..700u32).map(|i| (i * 37 % 251) as u8).collect();
    vec![
        table_of(60),
        table_of(0),
        Case::new("m.npy", npy("200, 3", "False", wave(600)), &[3, 64, 1000, 1 << 20])
            .asks(&[rows])
            .asks(&["normalize:0,2,l2,out=OUT/two.csv"]),
        Case::new("f.npy", npy("200, 3", "True", wave(600)), &[3, 1000]).asks(&[rows]),
        Case::new("c.npy", npy("12, 5, 7", "True", wave(420)), &[5, 700])
            .asks(&["normalize:value,out=OUT/c.out.npy"]),
        Case::new("r.dat", records, &[1, 3, 64])
            .with(&[("record-length", "7")])
            .asks(&["grep:'(?-u:\\x25)',out=OUT/found.dat"]),
        Case::new("t.csv.gz", gz, &[3, 100, 1 << 20]).asks(&["normalize:x,out=OUT/z.csv"]),
        Case::new("u.log", "\u{feff}one\ntwo", &[1, 2]).asks(&["grep:'x',invert,out=OUT/x.log"]),
        Case::new("a.log", "one\ntwo", &[1, 2])
            .and("b.log", "")
            .and("c.log", "three\nfour\n")
            .asks(&["grep:'o',out=OUT/o.log"]),
    ]
}

/// All of them.
pub fn all() -> Vec<Case> {
    let of = [tables, lines, arrays, volumes, records, compressed, outputs];
    of.into_iter().flat_map(|cases| cases()).collect()
}

/// Names of kernels that are asked for, by groups alone or at all.
pub fn kernels(grouped: bool) -> Vec<String> {
    let cases = all();
    let requests = cases.iter().flat_map(|c| &c.requests);
    let specs = requests.filter(|r| !grouped || !r.by.is_empty()).flat_map(|r| &r.kernels);
    let mut names: Vec<String> =
        specs.map(|k| k.split_once(':').map_or(&**k, |(name, _)| name).to_owned()).collect();
    names.sort();
    names.dedup();
    names
}

//! Splits, analytic cases, and a plain ray caster that sees the whole volume at once.

use super::empty::Empty;
use super::*;
use crate::{AnyKernel, laws};
use proptest::prelude::*;
use stead_core::{Cancel, RecordKind, Schema, Shape};

fn kernel(text: &str, dims: [u64; 3]) -> Result<Arc<dyn AnyKernel>> {
    let shape = Some(Shape::new(dims.to_vec())?);
    let schema = Schema { records: RecordKind::Items, columns: vec![], shape };
    let path = Some(std::path::Path::new("d/vol.npy"));
    build(&Spec::parse(text)?, &Context { schema: &schema, path, grouped: false }).map(|b| b.kernel)
}

/// A smooth volume in C order.
fn volume(d: [u64; 3]) -> Vec<f32> {
    let n = d[0] * d[1] * d[2];
    (0..n).map(|i| ((i % d[2]) as f32 * 0.3).sin() + ((i / d[2]) as f32 * 0.11).cos()).collect()
}

/// An array in C order, as it lies in Fortran order.
fn transposed(d: [u64; 3], v: &[f32]) -> Vec<f32> {
    let mut f = vec![0.0; v.len()];
    for (i, x) in v.iter().enumerate() {
        let i = i as u64;
        let (a, b, c) = (i / (d[1] * d[2]), i / d[2] % d[1], i % d[2]);
        f[((c * d[1] + b) * d[0] + a) as usize] = *x;
    }
    f
}

/// The planes that a picture needs after those of a cell, and no more.
fn halo(text: &str) -> u64 {
    if text.contains("shading=none") { 1 } else { 2 }
}

/// The blocks that a scan makes: one cell and its halo each.
fn blocks(shape: [u64; 3], order: Order, voxels: &[f32], halo: u64) -> Vec<Block<'_>> {
    let (cell, plane) = (brick_planes(shape), (shape[1] * shape[2]) as usize);
    (0..shape[0].div_ceil(cell))
        .map(|i| {
            let first = i * cell;
            let planes = cell.min(shape[0] - first) as usize;
            let end = (first as usize + planes + halo as usize).min(shape[0] as usize);
            let voxels = &voxels[first as usize * plane..end * plane];
            Block {
                seq: i,
                rows: planes * plane,
                brick: Some(Brick { shape, order, first, planes, voxels }),
                ..Block::empty()
            }
        })
        .collect()
}

fn decode(bytes: &[u8]) -> (u32, u32, Vec<u8>) {
    let mut r = png::Decoder::new(std::io::Cursor::new(bytes)).read_info().expect("png");
    let mut data = vec![0; r.output_buffer_size().expect("size")];
    let info = r.next_frame(&mut data).expect("frame");
    (info.width, info.height, data)
}

fn pixels(text: &str, dims: [u64; 3], voxels: &[f32]) -> Vec<u8> {
    let k = kernel(text, dims).expect("kernel");
    let blocks = blocks(dims, Order::C, voxels, halo(text));
    let (_, file) = laws::answer_and_file(k, &[blocks.iter().collect()], false);
    decode(&file.expect("file")).2
}

/// Back to front over the whole volume, in f64, with no cells, no early end and nothing passed over.
fn reference(
    text: &str,
    dims: [u64; 3],
    voxels: &[f32],
    range: (f64, f64),
    alpha: f64,
) -> Vec<f64> {
    let spec = Spec::parse(text).expect("spec");
    let get = |k: &str, d: f64| spec.parse_option(k, d).expect("option");
    let (w, h, step) =
        (get("width", 512.0) as usize, get("height", 512.0) as usize, get("step", 1.0));
    let perspective = spec.option("projection") == Some("perspective");
    let camera =
        Camera::new((w, h), dims, get("azimuth", 30.0), get("elevation", 20.0), 1.0, perspective);
    let strides = [dims[1] * dims[2], dims[2], 1];
    let value = |p: [f64; 3]| {
        (0..8u64).fold(0.0, |v, corner| {
            let (mut weight, mut at) = (1.0, 0);
            for a in 0..3 {
                let q = p[a].clamp(0.0, dims[a] as f64 - 1.0);
                let up = corner >> a & 1;
                let f = q - q.floor();
                weight *= if up == 1 { f } else { 1.0 - f };
                at += (q.floor() as u64 + up).min(dims[a] - 1) * strides[a];
            }
            v + weight * f64::from(voxels[at as usize])
        })
    };
    let mut out = Vec::new();
    for i in 0..w * h {
        let ray = camera.ray(i % w, i / w);
        let mut c = 0.0;
        for k in (0..4000).rev() {
            let p = ray.at((k as f64 + 0.5) * step);
            if (0..3).any(|a| p[a] < -0.5 || p[a] >= dims[a] as f64 - 0.5) {
                continue;
            }
            let v = value(p);
            if !v.is_finite() {
                continue;
            }
            let u = ((v - range.0) / (range.1 - range.0)).clamp(0.0, 1.0);
            let a = 1.0 - (1.0 - alpha * u).powf(step);
            let mut g = [0, 1, 2].map(|a| {
                let by = |s: f64| [0, 1, 2].map(|b| p[b] + if a == b { s } else { 0.0 });
                value(by(0.5)) - value(by(-0.5))
            });
            g.iter_mut().filter(|g| !g.is_finite()).for_each(|g| *g = 0.0);
            let length = g.iter().map(|g| g * g).sum::<f64>().sqrt();
            let cosine = (0..3).map(|a| g[a] * camera.light[a]).sum::<f64>().abs() / length;
            let lit = spec.option("shading") != Some("none") && length > 0.0;
            let light = if lit { 0.5 + 0.5 * cosine } else { 1.0 };
            c = u * a * light + (1.0 - a) * c;
        }
        out.push(c * 255.0);
    }
    out
}

#[test]
fn any_split_gives_the_same_picture() {
    for projection in ["orthographic", "perspective"] {
        for (azimuth, elevation) in [(30, 20), (200, -50)] {
            for shading in ["none", "gradient"] {
                let dims = [101, 20, 30];
                let mut v = volume(dims);
                v.iter_mut().step_by(997).for_each(|v| *v = f32::NAN);
                let text = format!(
                    "render:width=24,height=20,azimuth={azimuth},elevation={elevation},\
                     projection={projection},shading={shading},step=2"
                );
                let blocks = |halo| blocks(dims, Order::C, &v, halo);
                let of = |blocks: &[Block<'_>]| {
                    let k = kernel(&text, dims).expect("kernel");
                    laws::answer_and_file(k, &[blocks.iter().collect()], false).1
                };
                // What other kernels need after a cell makes no difference.
                assert!(of(&blocks(halo(&text))) == of(&blocks(7)));
                let blocks = blocks(halo(&text));
                assert!(blocks.len() > 5);
                let answer = laws::check(kernel(&text, dims).expect("kernel"), &blocks);
                assert_eq!(answer.get("out"), Some(&Value::Text("d/vol.render.png".into())));
                assert_eq!(answer.get("width"), Some(&Value::Int(24)));
            }
        }
    }
}

#[test]
fn pictures_agree_with_a_plain_ray_caster() {
    for dims in [[1, 1, 1], [2, 1, 5], [17, 9, 11], [50, 6, 5]] {
        for projection in ["orthographic", "perspective"] {
            for shading in ["none", "gradient"] {
                for (azimuth, elevation) in [(30, 20), (210, -20), (0, 0), (90, 90), (17, -90)] {
                    let v: Vec<f32> = volume(dims);
                    let text = format!(
                        "render:width=20,height=17,azimuth={azimuth},elevation={elevation},\
                         projection={projection},shading={shading},step=0.5,colors=gray,\
                         opacity='0:0;1:0.2',min=-1,max=1.5"
                    );
                    let got = pixels(&text, dims, &v);
                    let want = reference(&text, dims, &v, (-1.0, 1.5), 0.2);
                    for (g, w) in got.chunks(3).zip(&want) {
                        // One level: rounding, the colour table, f32 sums.
                        assert!(
                            (f64::from(g[0]) - w).abs() <= 1.0,
                            "{dims:?} {text}: {} {w}",
                            g[0]
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn holes_let_light_through_and_spare_the_rest() {
    let dims = [20, 18, 22];
    let mut v = volume(dims);
    for (i, x) in v.iter_mut().enumerate() {
        match i % 131 {
            7 => *x = f32::NAN,
            58 => *x = f32::INFINITY,
            91 => *x = f32::NEG_INFINITY,
            _ => {}
        }
    }
    // A hole that reaches from one cell to the next.
    v[14 * 18 * 22..17 * 18 * 22].fill(f32::NAN);
    for shading in ["none", "gradient"] {
        let text = format!(
            "render:width=30,height=28,shading={shading},colors=gray,opacity='0:0;1:0.2',min=-1,max=1.5"
        );
        let got = pixels(&text, dims, &v);
        let want = reference(&text, dims, &v, (-1.0, 1.5), 0.2);
        assert!(want.iter().any(|w| *w > 20.0));
        for (g, w) in got.chunks(3).zip(&want) {
            assert!((f64::from(g[0]) - w).abs() <= 1.0, "{} {w}", g[0]);
        }
        // The range is that of the finite voxels.
        let k = kernel("render:width=4,height=4", dims).expect("kernel");
        let answer = laws::check(k, &blocks(dims, Order::C, &v, 2));
        let finite = || v.iter().copied().filter(|v| v.is_finite());
        let low = f64::from(finite().fold(f32::MAX, f32::min));
        assert_eq!(answer.get("min"), Some(&Value::Float(low)));
    }
}

#[test]
fn rays_end_where_nothing_more_is_seen() {
    // Seen along axis 2; the first voxels that a ray meets are the last ones.
    let dims = [40, 40, 40];
    let text = "render:width=20,height=20,azimuth=0,elevation=0,colors=hot,opacity='0:0.999;1:0.999',\
                min=0,max=1,shading=none";
    let (mut a, mut b) = (vec![0.7f32; 64_000], vec![0.7f32; 64_000]);
    for (i, (a, b)) in a.iter_mut().zip(&mut b).enumerate() {
        if i % 40 < 30 {
            (*a, *b) = (0.1, f32::INFINITY);
        }
    }
    assert!(pixels(text, dims, &a) == pixels(text, dims, &b));
    // Along the axis of the cells: what lies behind is in other cells, and still is not seen.
    let text = text.replace("elevation=0", "elevation=90");
    let first = |back: f32| (0..64_000).map(|i| if i < 1600 * 30 { back } else { 0.7 }).collect();
    let (a, b): (Vec<f32>, Vec<f32>) = (first(0.1), first(f32::NAN));
    assert!(pixels(&text, dims, &a) == pixels(&text, dims, &b));
    // And the end costs less than a level where opacity grows slowly.
    let text =
        "render:width=20,height=20,colors=gray,opacity='0:0;1:0.9',min=-2,max=2,shading=none";
    let v = volume([40, 40, 40]);
    let want = reference(text, dims, &v, (-2.0, 2.0), 0.9);
    for (g, w) in pixels(text, dims, &v).chunks(3).zip(&want) {
        assert!((f64::from(g[0]) - w).abs() <= 1.0, "{} {w}", g[0]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn passing_over_what_is_empty_changes_no_bit(
        dims in [1u64..40, 1u64..30, 1u64..30],
        seed in any::<u64>(),
        angles in (-360f64..360.0, -90f64..90.0),
        step in 0.05f64..4.0,
        bands in 1usize..4,
        fortran: bool,
        perspective: bool,
        gradient: bool,
        plane in 0u64..40,
    ) {
        let mut state = seed | 1;
        let mut next = move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        // Lumps of one value in emptiness, with holes.
        let n = dims.iter().product::<u64>() as usize;
        let mut voxels = vec![0.25f32; n];
        for _ in 0..6 {
            let (at, len, v) = (next() as usize % n, next() as usize % (n / 4 + 1), next() % 9);
            let v = [0.0, 1.0, 0.26, 0.5, 0.75, f32::NAN, f32::INFINITY, 0.1, 0.9][v as usize];
            voxels[at..(at + len).min(n)].fill(v);
        }
        let opacity: Vec<_> = (0..=2 * bands)
            .map(|i| (i as f64 / (2 * bands) as f64, if i % 2 == 1 { 0.4 } else { 0.0 }))
            .flat_map(|(u, a)| [(u * 0.9, a), (u * 0.9 + 0.02, a)])
            .collect();
        let transfer = Transfer::new(0.0, 1.0, transfer::MAPS[3].1, &opacity, step);
        let camera = Camera::new((24, 22), dims, angles.0, angles.1, 1.0, perspective);
        let axis = if fortran { 2 } else { 0 };
        let (a, b, c) = (dims[0] as usize, dims[1] as usize, dims[2] as usize);
        let strides = if fortran { [1, a, a * b] } else { [b * c, c, 1] };
        let first = plane % dims[axis];
        let end = (first + 16).min(dims[axis]);
        let per = n / dims[axis] as usize;
        let shading = if gradient { Shading::Gradient } else { Shading::None };
        let last = (end + shading.halo()).min(dims[axis]) as usize;
        let voxels = &voxels[first as usize * per..last * per];
        let cell = Cell { dims, axis, first, end, voxels, strides };
        let view = View { camera: &camera, transfer: &transfer, step, shading };
        // What is in there must not matter.
        let mut places = vec![600.0; 77_000];
        let got = cell.render(&view, &mut places, None).expect("a picture");
        let every = Empty::new(&cell, &transfer).seen();
        let want = cell.render_with(&view, &every, &mut Vec::new(), None).expect("a picture");
        let bits = |l: &layers::Layer| {
            let mut all = vec![[0; 4]; 24 * 22];
            for (line, y) in l.lines.iter().zip(l.y..) {
                for (c, x) in line.pixels.iter().zip(line.x..) {
                    all[y * 24 + x] = c.map(f32::to_bits);
                }
            }
            all
        };
        prop_assert!(bits(&got) == bits(&want));
    }
}

fn places_of(transfer: &Transfer, values: &[f32]) -> Vec<f32> {
    let mut places = vec![7.0; values.len()];
    transfer.places(values, &mut places);
    places
}

proptest! {
    #[test]
    fn places_are_those_of_the_formula(
        values in proptest::collection::vec(any::<f32>(), 0..40),
        near in proptest::collection::vec(-2.0f32..2.0, 0..40),
        ends in (any::<f32>(), any::<f32>()),
        unit: bool,
    ) {
        let (a, b) = if unit { (0.0, 1.0) } else { ends };
        prop_assume!(a.is_finite() && b.is_finite() && a <= b);
        let points = [(0.0, 0.0), (1.0, 1.0)];
        let transfer = Transfer::new(a.into(), b.into(), transfer::MAPS[0].1, &points, 1.0);
        let values: Vec<f32> = values.into_iter().chain(near).collect();
        let width = f64::from(b) - f64::from(a);
        let scale = if width > 0.0 { (1024.0 / width).min(f64::from(f32::MAX)) as f32 } else { 0.0 };
        for (v, place) in values.iter().zip(places_of(&transfer, &values)) {
            let at = if scale == 0.0 { 512.0 } else { ((v - a) * scale).clamp(-1e30, 1e30) };
            prop_assert!(if v.is_finite() { place == at } else { place.is_nan() }, "{v} {place} {at}");
        }
    }
}

#[test]
fn emptiness_is_found() {
    let mut v = vec![3.7f32; 64_000];
    let text = transfer::points("0:0;1:0.5").expect("points");
    let transfer = Transfer::new(f64::from(3.7f32), 9.0, transfer::MAPS[0].1, &text, 1.0);
    fn cell(voxels: &[f32]) -> Cell<'_> {
        Cell { dims: [40; 3], axis: 0, first: 0, end: 40, voxels, strides: [1600, 40, 1] }
    }
    assert!(Empty::new(&cell(&v), &transfer).all);
    v[20 * 1600 + 20 * 40 + 20] = 9.0;
    v[3..9].fill(f32::NAN);
    let empty = Empty::new(&cell(&v), &transfer);
    // Parts of four voxels, ten along each axis: the voxel belongs to one of them, and to seven that end there.
    let seen: Vec<usize> = (0..1000).filter(|n| !empty.hidden(*n)).collect();
    let near = |x: usize| [4, 5].map(|k| x + k);
    assert_eq!(seen, [440, 450, 540, 550].into_iter().flat_map(near).collect::<Vec<_>>());
    for nothing in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        v.fill(nothing);
        v[99] = f32::NAN;
        assert!(Empty::new(&cell(&v), &transfer).all);
    }
}

/// Where a voxel must be seen, by another way of thinking: x, y, z are axes 2, 1, 0; the eye stands in
/// the direction of azimuth (from x towards y) and elevation; right and up follow by cross products.
fn expected(
    (w, h): (f64, f64),
    dims: [u64; 3],
    voxel: [u64; 3],
    (azimuth, elevation): (f64, f64),
    perspective: bool,
) -> (f64, f64) {
    let cross = |a: [f64; 3], b: [f64; 3]| {
        [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]]
    };
    let dot = |a: [f64; 3], b: [f64; 3]| a[0] * b[0] + a[1] * b[1] + a[2] * b[2];
    let (a, e) = (azimuth.to_radians(), elevation.to_radians());
    let eye = [e.cos() * a.cos(), e.cos() * a.sin(), e.sin()];
    let right = [-a.sin(), a.cos(), 0.0];
    let up = cross(eye, right);
    let xyz = [2, 1, 0].map(|i| voxel[i] as f64 - (dims[i] as f64 - 1.0) / 2.0);
    let radius = dims.map(|d| d as f64).iter().map(|d| d * d).sum::<f64>().sqrt() / 2.0;
    // The circle around the volume fills the shorter side.
    let mut scale = w.min(h) / (2.0 * radius);
    if perspective {
        // The sphere's outline from 4 radii: sine 1/4, so tangent 1 / sqrt(15).
        scale = w.min(h) / 2.0 * 15f64.sqrt() / (4.0 * radius - dot(xyz, eye));
    }
    (w / 2.0 + dot(xyz, right) * scale, h / 2.0 - dot(xyz, up) * scale)
}

#[test]
fn a_voxel_is_seen_where_it_lies() {
    let (w, h) = (160, 128);
    for dims in [[9u64, 9, 9], [5, 9, 13], [21, 4, 7]] {
        for voxel in [[1, 1, 1], [3, 2, 5], [dims[0] - 1, 0, dims[2] - 1], [0, dims[1] - 1, 2]] {
            let mut v = vec![0.0f32; dims.iter().product::<u64>() as usize];
            v[((voxel[0] * dims[1] + voxel[1]) * dims[2] + voxel[2]) as usize] = 1.0;
            for angles in [(0, 0), (90, 0), (0, 90), (30, 20), (135, -45), (-100, 70), (250, -90)] {
                for projection in ["orthographic", "perspective"] {
                    let text = format!(
                        "render:width={w},height={h},azimuth={},elevation={},projection={projection},\
                         min=0,max=1,opacity='0:0;0.6:0;1:1',colors=gray,step=0.1,shading=none",
                        angles.0, angles.1
                    );
                    let k = kernel(&text, dims).expect("kernel");
                    let f = transposed(dims, &v);
                    let reversed = [dims[2], dims[1], dims[0]];
                    let blocks = blocks(reversed, Order::Fortran, &f, halo(&text));
                    let (_, file) = laws::answer_and_file(k, &[blocks.iter().collect()], false);
                    for got in [pixels(&text, dims, &v), decode(&file.expect("file")).2] {
                        let (mut x, mut y, mut n) = (0.0, 0.0, 0.0);
                        for (i, p) in got.chunks(3).enumerate().filter(|(_, p)| p[0] > 0) {
                            let weight = f64::from(p[0]);
                            x += ((i % w) as f64 + 0.5) * weight;
                            y += ((i / w) as f64 + 0.5) * weight;
                            n += weight;
                        }
                        let angles = (f64::from(angles.0), f64::from(angles.1));
                        let size = (w as f64, h as f64);
                        let want = expected(size, dims, voxel, angles, projection == "perspective");
                        let off = (x / n - want.0).hypot(y / n - want.1);
                        // A voxel is some 6 pixels wide, and those at the faces are seen as halves that
                        // reach half a voxel out.
                        let rim = (0..3).any(|a| voxel[a] == 0 || voxel[a] + 1 == dims[a]);
                        assert!(
                            off < if rim { 4.0 } else { 0.7 },
                            "{off} {dims:?} {voxel:?} {text}"
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn a_slab_absorbs_as_the_formula_says() {
    let dims = [40, 40, 7];
    let text = "render:width=9,height=9,azimuth=0,elevation=0,colors=gray,min=0,max=1,opacity='0:0.1;1:0.1'";
    // A flat array has no gradient, so nothing is shaded.
    let got = pixels(text, dims, &vec![1.0; 40 * 40 * 7]);
    let want = 255.0 * (1.0 - 0.9f64.powi(7));
    assert!((f64::from(got[3 * 40]) - want).abs() <= 1.0, "{} {want}", got[3 * 40]);
}

#[test]
fn a_picture_that_nobody_wants_is_not_finished() {
    let dims = [20, 9, 9];
    let v = volume(dims);
    let cancel = Cancel::default();
    let blocks = blocks(dims, Order::C, &v, 2);
    let block = Block { cancel: Some(&cancel), ..blocks[0] };
    let k = kernel("render:width=30,height=30,min=0,max=1", dims).expect("kernel");
    assert!(k.update(&mut k.init(), &block).is_ok());
    cancel.cancel();
    let e = k.update(&mut k.init(), &block).expect_err("cancelled");
    assert_eq!(e.kind(), stead_core::Kind::Cancelled);
}

#[test]
fn what_is_not_finite_is_transparent() {
    let dims = [3, 3, 3];
    let k = "render:width=5,height=5,background=#102030";
    let got = pixels(k, dims, &[f32::NAN; 27]);
    assert!(got.chunks(3).all(|c| c == [0x10, 0x20, 0x30]));
    assert!(pixels(k, [0, 3, 3], &[]).chunks(3).all(|c| c == [0x10, 0x20, 0x30]));
    // A corner of the picture misses the volume.
    assert_eq!(pixels(k, dims, &[1.0; 27])[..3], [0x10, 0x20, 0x30]);
}

#[test]
fn both_orders_give_nearly_the_same_picture() {
    let dims = [40u64, 9, 70];
    let v = volume(dims);
    let f = transposed(dims, &v);
    let text = "render:width=30,height=30,projection=perspective";
    let k = kernel(text, dims).expect("kernel");
    let fortran = blocks([70, 9, 40], Order::Fortran, &f, 2);
    laws::check(k.clone(), &fortran);
    let (_, file) = laws::answer_and_file(k, &[fortran.iter().collect()], false);
    let (w, h, got) = decode(&file.expect("file"));
    assert_eq!((w, h), (30, 30));
    let want = pixels(text, dims, &v);
    assert!(want.iter().any(|v| *v > 0));
    assert!(got.iter().zip(&want).all(|(a, b)| a.abs_diff(*b) <= 1));
}

#[test]
fn bad_requests_are_refused() {
    for bad in [
        "width=0",
        "width=100000,height=100000",
        "zoom=0",
        "zoom=NaN",
        "step=0",
        "min=2,max=1",
        "min=NaN",
        "colors=x",
        "background=#12345",
        "background=#+12345",
        "opacity='1:0;0:1'",
        "opacity=x",
        "opacity='0:2'",
        "projection=fish",
        "shading=phong",
        "elevation=91",
        "out=''",
        "foo=1",
        "x",
    ] {
        assert!(kernel(&format!("render:{bad}"), [2, 2, 2]).is_err(), "{bad}");
    }
}

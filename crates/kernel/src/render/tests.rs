//! Splits, analytic cases, and a plain ray caster that sees the whole volume at once.

use super::*;
use crate::{AnyKernel, laws};
use stead_core::{RecordKind, Schema, Shape};

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

/// The blocks that a scan makes: one cell and its halo each.
fn blocks(shape: [u64; 3], order: Order, voxels: &[f32]) -> Vec<Block<'_>> {
    let (cell, plane) = (brick_planes(shape), (shape[1] * shape[2]) as usize);
    (0..shape[0].div_ceil(cell))
        .map(|i| {
            let first = i * cell;
            let planes = cell.min(shape[0] - first) as usize;
            let end = (first as usize + planes + 1).min(shape[0] as usize);
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
    let blocks = blocks(dims, Order::C, voxels);
    let (_, file) = laws::answer_and_file(k, &[blocks.iter().collect()], false);
    decode(&file.expect("file")).2
}

/// Back to front over the whole volume, in f64, with no cells and no early end.
fn reference(text: &str, dims: [u64; 3], voxels: &[f32], range: (f64, f64)) -> Vec<f64> {
    let spec = Spec::parse(text).expect("spec");
    let get = |k: &str, d: f64| spec.parse_option(k, d).expect("option");
    let (w, h, step) =
        (get("width", 512.0) as usize, get("height", 512.0) as usize, get("step", 1.0));
    let perspective = spec.option("projection") == Some("perspective");
    let camera =
        Camera::new((w, h), dims, get("azimuth", 30.0), get("elevation", 20.0), 1.0, perspective);
    let strides = [dims[1] * dims[2], dims[2], 1];
    let mut out = Vec::new();
    for i in 0..w * h {
        let ray = camera.ray(i % w, i / w);
        let mut c = 0.0;
        for k in (0..4000).rev() {
            let p = ray.at((k as f64 + 0.5) * step);
            if (0..3).any(|a| p[a] < -0.5 || p[a] >= dims[a] as f64 - 0.5) {
                continue;
            }
            let mut v = 0.0;
            for corner in 0..8u64 {
                let (mut weight, mut at) = (1.0, 0);
                for a in 0..3 {
                    let q = p[a].clamp(0.0, dims[a] as f64 - 1.0);
                    let up = corner >> a & 1;
                    let f = q - q.floor();
                    weight *= if up == 1 { f } else { 1.0 - f };
                    at += (q.floor() as u64 + up).min(dims[a] - 1) * strides[a];
                }
                if weight > 0.0 {
                    v += weight * f64::from(voxels[at as usize]);
                }
            }
            if v.is_finite() {
                let u = ((v - range.0) / (range.1 - range.0)).clamp(0.0, 1.0);
                let a = 1.0 - (1.0 - 0.2 * u).powf(step);
                c = u * a + (1.0 - a) * c;
            }
        }
        out.push(c * 255.0);
    }
    out
}

#[test]
fn any_split_gives_the_same_picture() {
    // 600 x 600 planes make cells of 2 planes, so there are several of them.
    for projection in ["orthographic", "perspective"] {
        for (azimuth, elevation) in [(30, 20), (200, -50)] {
            let dims = [13, 600, 600];
            let v = volume(dims);
            let text = format!(
                "render:width=24,height=20,azimuth={azimuth},elevation={elevation},projection={projection},step=4"
            );
            let blocks = blocks(dims, Order::C, &v);
            assert!(blocks.len() > 5);
            let answer = laws::check(kernel(&text, dims).expect("kernel"), &blocks);
            assert_eq!(answer.get("out"), Some(&Value::Text("d/vol.render.png".into())));
            assert_eq!(answer.get("width"), Some(&Value::Int(24)));
        }
    }
}

#[test]
fn pictures_agree_with_a_plain_ray_caster() {
    for dims in [[1, 1, 1], [2, 1, 5], [40, 9, 11], [70, 6, 5]] {
        for projection in ["orthographic", "perspective"] {
            for (azimuth, elevation) in [(30, 20), (210, -20), (0, 0), (90, 90), (17, -90)] {
                let v: Vec<f32> = volume(dims);
                let text = format!(
                    "render:width=20,height=17,azimuth={azimuth},elevation={elevation},\
                     projection={projection},step=0.5,colors=gray,min=-1,max=1.5"
                );
                let got = pixels(&text, dims, &v);
                let want = reference(&text, dims, &v, (-1.0, 1.5));
                for (g, w) in got.chunks(3).zip(&want) {
                    // One level: rounding, the colour table, f32 sums.
                    assert!((f64::from(g[0]) - w).abs() <= 1.0, "{dims:?} {text}: {} {w}", g[0]);
                }
            }
        }
    }
}

#[test]
fn a_slab_absorbs_as_the_formula_says() {
    let dims = [40, 40, 7];
    let text = "render:width=9,height=9,azimuth=0,elevation=0,colors=gray,min=0,max=1,opacity='0:0.1;1:0.1'";
    let got = pixels(text, dims, &vec![1.0; 40 * 40 * 7]);
    let want = 255.0 * (1.0 - 0.9f64.powi(7));
    assert!((f64::from(got[3 * 40]) - want).abs() <= 1.0, "{} {want}", got[3 * 40]);
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
    let mut f = vec![0.0; v.len()];
    for (i, x) in v.iter().enumerate() {
        let i = i as u64;
        let (a, b, c) = (i / (9 * 70), i / 70 % 9, i % 70);
        f[((c * 9 + b) * 40 + a) as usize] = *x;
    }
    let text = "render:width=30,height=30,projection=perspective";
    let k = kernel(text, dims).expect("kernel");
    let fortran = blocks([70, 9, 40], Order::Fortran, &f);
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
        "elevation=91",
        "out=''",
        "foo=1",
        "x",
    ] {
        assert!(kernel(&format!("render:{bad}"), [2, 2, 2]).is_err(), "{bad}");
    }
}

//! Pictures of flows.

#![allow(clippy::unwrap_used, clippy::panic)]

use stead_flow::{Graph, check, draw};

const TEXT: &str = r#"
name = "a-flow"
[read.sim]
stream = "simulation"
[read.other]
[node.parts]
op = "split"
of = "sim.T"
along = "x"
parts = ["left", "right"]
[node.mean]
op = "reduce"
of = "parts.left"
how = "mean"
[node.warm]
op = "scale"
of = "mean"
factor = 2.0
units = "\"K\" <&>"
[node.seldom]
op = "sample"
of = "other.p"
every = 4
[write.out]
variables = { warm = "warm", direct = "sim.T" }
[write.rare]
variables = { p = "seldom" }
"#;

/// Where each box is: its sides.
fn rects(svg: &str) -> Vec<[f64; 4]> {
    let number = |line: &str, name: &str| -> f64 {
        let from = line.split(&format!(" {name}=\"")).nth(1).unwrap();
        from.split('"').next().unwrap().parse().unwrap()
    };
    let boxes = svg.lines().filter(|line| line.starts_with("<rect") && line.contains(" rx="));
    boxes.map(|l| ["x", "y", "width", "height"].map(|name| number(l, name))).collect()
}

#[test]
fn a_picture_has_a_box_for_each_stream_and_node_and_none_lies_over_another() {
    let checked = check(&Graph::parse(TEXT).unwrap()).unwrap();
    let svg = draw::svg(&checked);
    let boxes = rects(&svg);
    assert_eq!(boxes.len(), 2 + 4 + 2);
    for (i, [x, y, w, h]) in boxes.iter().enumerate() {
        for [a, b, c, d] in boxes.iter().skip(i + 1) {
            let apart = x + w <= *a || a + c <= *x || y + h <= *b || b + d <= *y;
            assert!(apart, "boxes lie over each other:\n{svg}");
        }
    }
    // Arrows: T to parts and to out, parts to mean, mean to warm, warm to out, p to seldom, seldom to rare.
    assert_eq!(svg.matches("marker-end").count(), 7);
    assert!(svg.contains("<title>a-flow</title>"));
    assert!(svg.contains("&quot;K&quot; &lt;&amp;&gt;"));
    assert!(svg.contains("every 4 steps") && svg.contains("reads stream simulation"));
    assert_eq!(draw::svg(&check(&Graph::parse(TEXT).unwrap()).unwrap()), svg);
}

#[test]
fn a_png_is_one_and_as_large_as_the_svg() {
    let checked = check(&Graph::parse(TEXT).unwrap()).unwrap();
    let bytes = draw::png(&checked).unwrap();
    let mut reader = png::Decoder::new(std::io::Cursor::new(bytes)).read_info().unwrap();
    let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
    let info = reader.next_frame(&mut pixels).unwrap();
    let svg = draw::svg(&checked);
    let width: f64 =
        svg.split("width=\"").nth(1).unwrap().split('"').next().unwrap().parse().unwrap();
    assert!((f64::from(info.width) - 2.0 * width).abs() <= 2.0);
    // Boxes of all three colours, and letters.
    let pixels: Vec<[u8; 3]> = pixels.chunks(3).map(|p| p.try_into().unwrap()).collect();
    for colour in [[221, 235, 247], [250, 250, 250], [226, 240, 217], [34, 34, 34], [85, 85, 85]] {
        let n = pixels.iter().filter(|p| **p == colour).count();
        assert!(n > 500, "{colour:?}: {n}");
    }
}

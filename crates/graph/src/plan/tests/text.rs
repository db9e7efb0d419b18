//! What people look at.

use super::*;
use crate::op::Activation;

fn example() -> Graph {
    build(|g| {
        let image = g.input("image", floats(512), Phase::Clip)?;
        let w = g.parameter("weight", floats(256))?;
        let context = g.slice("encoder.context", image, 0, 0, 256)?;
        let x = g.input("x", floats(256), Phase::Step)?;
        let h = g.add("down.0.shift", x, w)?;
        let view = g.reshape("down.0.view", h, [1, 256])?;
        let a = g.activate("down.0.act", view, Activation::Silu)?;
        let flat = g.reshape("a.layer.whose.name.is.so.long.that.only.its.end.is.shown", a, [256])?;
        let y = g.add("out", flat, context)?;
        g.output("y", y)
    })
}

#[test]
fn a_plan_reads_well() {
    let graph = example();
    let text = plan(&graph, &Backend { workspace: 4096, ..IN_PLACE }).display(&graph).to_string();
    let expected = "\
plan test: 0 nodes at load, 1 a clip, 5 a step; 4 buffers
  weights     1.0 KiB  tensors: 1
  arena       6.0 KiB  the lower bound
  peak        7.0 KiB

     6.0 KiB │                ████
             │                ████
             │    ▃▃▃▃        ████
             │    ████        ████
             │████████        ████
             │████████▆▆▆▆▆▆▆▆████▆▆▆▆▆▆▆▆▆▆▆▆
             │████████████████████████████████
         0 B │████████████████████████████████
             └────────┴───────────────────────
              clip    step

  phase  live after  layer                             op                        memory
  input              image                             f32[512]                  0..800
  input              x                                 f32[256]                  1000..1400
  clip      2.0 KiB  encoder.context                   slice axis 0 0..256       1400..1800
  step      2.0 KiB  down.0.shift                      add                       1000..1400 in place
  step      2.0 KiB  down.0.view                       reshape [1, 256]          1000..1400 view
  step      2.0 KiB  down.0.act                        silu                      1000..1400 in place
                                                                                 0..1000 workspace
  step      2.0 KiB  …long.that.only.its.end.is.shown  reshape [256]             1000..1400 view
  step      2.0 KiB  out                               add                       1000..1400 in place
  output             y                                                           1000..1400
";
    assert_eq!(text, expected, "{text}");
    assert!(text.lines().all(|l| l.chars().count() <= 110), "{text}");
}

#[test]
fn the_figures_need_no_graph() {
    let plan = plan(&example(), &PLAIN);
    let expected = "\
plan: 0 nodes at load, 1 a clip, 5 a step; 6 buffers
  weights     1.0 KiB  tensors: 1
  arena       4.0 KiB  the lower bound
  peak        5.0 KiB
";
    assert_eq!(plan.to_string(), expected);
}

#[test]
fn the_picture_has_a_rectangle_for_each_buffer() {
    let mut g = GraphBuilder::new("a <b> & \"c\"");
    let x = g.input("x", floats(16), Phase::Step).unwrap();
    let y = g.scale("y", x, 2.0, 0.0).unwrap();
    g.output("y", y).unwrap();
    let graph = g.finish();
    let svg = plan(&graph, &PLAIN).to_svg(&graph);
    assert_eq!(svg.matches("<title>").count(), 2);
    assert!(svg.contains("a &lt;b&gt; &amp; &quot;c&quot;: arena 128 B"), "{svg}");
    assert!(svg.contains("<title>y\n64 B, 40..80\nfrom node 1 to results</title>"), "{svg}");
}

// Everything on the page of a profile.

const report = JSON.parse(document.getElementById("data").textContent);

part(() => drawMachine(report));
part(() => drawNotes(report));
part(() => drawFigures(report));
part(() => drawStages(report));
part(() => drawBottlenecks(report));
part(() => drawTimeline(report));
part(() => drawFlame(report));
part(() => drawRoofline(report));
part(() => drawMemory(report));
part(() => drawLayers("kinds", report.by_kind, report, "layers by kind of op", { withProgram: true }));
part(() => drawLayers("kernels", report.by_kernel, report, "layers by kernel", { withKind: true }));
part(() => drawLayers("layers", report.by_layer, report, "layers", { withKind: true, withProgram: true }));
document.documentElement.dataset.ready = "";

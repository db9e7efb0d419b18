// Errors are kept on the root element, where a test finds them, and shown: a page that lacks a part should say so.
(() => {
  const root = document.documentElement;
  root.dataset.faults = "0";
  const note = (message) => {
    root.dataset.faults = String(Number(root.dataset.faults) + 1);
    root.dataset.fault ??= message;
    const show = () => {
      if (document.getElementById("fault")) return;
      const notice = document.createElement("p");
      notice.id = "fault";
      notice.className = "notice";
      notice.setAttribute("role", "alert");
      notice.textContent = `A part of this page could not be shown: ${message}`;
      document.querySelector("header").append(notice);
    };
    if (document.querySelector("header")) show();
    else addEventListener("DOMContentLoaded", show);
  };
  addEventListener("error", (event) => note(event.message));
  addEventListener("unhandledrejection", (event) => note(String(event.reason)));
  // Whether anything is wider than the window.
  const measure = () => {
    root.dataset.width = String(root.scrollWidth);
    root.dataset.window = String(root.clientWidth);
  };
  addEventListener("load", measure);
  addEventListener("resize", measure);
})();

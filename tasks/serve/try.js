"use strict";
// The fields of a form appear, and its answer is shown below it; parameters that are left empty are not sent.
for (const form of document.querySelectorAll("form[data-method]")) {
  for (const field of form.querySelectorAll("input, textarea")) field.hidden = false;
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const request = { method: form.dataset.method };
    let url = form.dataset.path;
    if (request.method === "GET") {
      const given = [...new FormData(form)].filter(([, value]) => value !== "");
      url += "?" + new URLSearchParams(given);
    } else {
      request.headers = { "Content-Type": "application/json" };
      request.body = form.elements.body.value;
    }
    const output = form.querySelector("output");
    output.hidden = false;
    output.textContent = "…";
    try {
      const started = performance.now();
      const response = await fetch(url, request);
      const text = await response.text();
      const took = Math.round(performance.now() - started);
      let body = text;
      try { body = JSON.stringify(JSON.parse(text), null, 2); } catch {} // an error of a proxy may be no JSON
      output.textContent = `${request.method} ${url}\n${response.status}, ${took} ms\n\n${body}`;
    } catch (error) {
      output.textContent = `${request.method} ${url}\n${error}`;
    }
  });
}

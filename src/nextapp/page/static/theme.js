// Light or dark, before the first paint: chosen here before, else as the system says.
document.documentElement.dataset.theme = localStorage.getItem("nextapp-theme") ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");

// Runs before the first paint, so that a chosen theme does not flash; without a choice the system's holds.
try {
  const chosen = localStorage.getItem("harborrl-theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
} catch {
  // storage is blocked: the system's theme holds
}

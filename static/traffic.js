// The page about simulated users: the dial follows the slider before the change is sent.
document.addEventListener("input", ({ target }) => {
  if (!target.matches(".dial input")) return;
  document.getElementById("percent").textContent = target.value;
  const angle = Math.PI * (1 - target.value / 100);
  const tip = `${(50 + 34 * Math.cos(angle)).toFixed(2)} ${(48 - 34 * Math.sin(angle)).toFixed(2)}`;
  document.getElementById("hand").setAttribute("d", `M50 48 ${tip}`);
});

// Numbers as people read them.

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });

/** 1234567 → 1 234 567 */
export const count = (number) => whole.format(number).replaceAll(",", "\u202f");

/** A number in few letters: 12 345 → 12k */
export function short(number) {
  const size = Math.abs(number);
  if (size >= 1e9) return number.toExponential(0).replace("e+", "e");
  for (const [unit, letter] of [[1e6, "M"], [1e3, "k"]]) {
    if (size >= unit) return `${Number((number / unit).toPrecision(size >= 100 * unit ? 3 : 2))}${letter}`;
  }
  return String(Number(number.toPrecision(3)));
}

/** A Unix time, as the clock of whoever reads it shows it; with the day unless that is today. */
export function clock(seconds) {
  const time = new Date(1000 * seconds), day = { day: "numeric", month: "short" };
  const today = time.toDateString() === new Date().toDateString();
  return time.toLocaleString([], { hour: "2-digit", minute: "2-digit", ...(today ? {} : day) });
}

export const cost = (number) => number.toFixed(4);

export const percent = (share) => `${Number((100 * share).toFixed(1))} %`;

const levels: Readonly<Record<number, string>> = { 20: 'DEBUG', 30: 'INFO', 40: 'WARN', 50: 'ERROR' }

/** Characters that a terminal does not show as they are: controls, and marks that change the direction of text. */
const unprintable = /[\u0000-\u001f\u007f-\u009f\u2028-\u202e\u2066-\u2069]/g
/** Texts that need no quotes. */
const plain = /^[\w./:@%+,-]+$/

function escaped(text: string): string {
  return text.replaceAll(unprintable, (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`)
}

function valueText(value: unknown): string {
  return typeof value === 'string' && plain.test(value) ? value : escaped(JSON.stringify(value))
}

/** Turns a line of JSON into a line for people: time, level, message, and the fields as `name=value`. */
export function textLine(line: string): string {
  // a cast: the logger writes objects with these members
  const { level, time, message, ...fields } = JSON.parse(line) as { readonly level: number; readonly time: string; readonly message: string }
  const pairs = Object.entries(fields).map(([name, value]) => ` ${escaped(name)}=${valueText(value)}`)
  return `${time} ${(levels[level] ?? String(level)).padEnd(5)} ${escaped(message)}${pairs.join('')}\n`
}

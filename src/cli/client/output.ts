import { once } from 'node:events'
import { styleText } from 'node:util'
import { stringify } from 'yaml'

/** A stream that text goes to; `process.stdout` is one. */
interface Sink {
  readonly isTTY?: boolean
  write(text: string): boolean
}

/** How text can stand out at a terminal. */
export type Emphasis = 'bold' | 'dim'

/** Where a command's results go. */
export interface Output {
  /** Resolves when more can be taken. */
  write(text: string): Promise<void>
  /** The text as it is, or emphasised where the output is a terminal and NO_COLOR is not set. */
  style(emphasis: Emphasis, text: string): string
}

/** Writes to a stream. Colours: only at a terminal that is not dumb, and never with a NO_COLOR that is not empty. */
export function createOutput(sink: Sink & NodeJS.EventEmitter, env: Readonly<Record<string, string | undefined>>): Output {
  const coloured = sink.isTTY === true && (env['NO_COLOR'] ?? '') === '' && env['TERM'] !== 'dumb'
  return {
    async write(text) {
      if (!sink.write(text)) await once(sink, 'drain')
    },
    style: (emphasis, text) => (coloured ? styleText(emphasis, text, { validateStream: false }) : text),
  }
}

/** Characters that JSON and YAML leave as they are and that steer terminals or turn the direction of text. */
const steering = /[\u007f-\u009f\u2028\u2029\p{Bidi_Control}]/gu

/** JSON by two spaces, without a line break at its end. It is safe to show at a terminal. */
export function jsonText(value: unknown): string {
  return JSON.stringify(value, undefined, 2).replaceAll(steering, escaped)
}

/** JSON on one line, without a line break at its end. It is safe to show at a terminal. */
export function jsonLine(value: unknown): string {
  return JSON.stringify(value).replaceAll(steering, escaped)
}

/** YAML with a line break at its end, quoted so that readers of YAML 1.1 and 1.2 read the same. It is safe to show at a terminal. */
export function yamlText(value: unknown): string {
  const plain = stringify(value, { lineWidth: 0, version: '1.1' })
  if (plain.search(steering) < 0) return plain
  // Only quoted text can hold what is escaped.
  return stringify(value, { lineWidth: 0, version: '1.1', defaultStringType: 'QUOTE_DOUBLE', defaultKeyType: 'QUOTE_DOUBLE' }).replaceAll(steering, escaped)
}

function escaped(character: string): string {
  return `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`
}

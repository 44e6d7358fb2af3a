import { once } from 'node:events'
import { styleText } from 'node:util'

/** A writable stream for text, such as `process.stdout`. */
interface Sink {
  readonly isTTY?: boolean
  write(text: string): boolean
}

/** Styles for text at a terminal. */
export type Emphasis = 'bold' | 'dim'

/** The destination of a command's output. */
export interface Output {
  /** Writes text. Resolves when more text can be written. */
  write(text: string): Promise<void>
  /** Returns the text with this style if the output is a terminal and NO_COLOR is not set, otherwise unchanged. */
  style(emphasis: Emphasis, text: string): string
}

/** Creates an output for a stream. Uses styles only for a terminal that is not `dumb`, and only if NO_COLOR is empty or not set. */
export function createOutput(sink: Sink & NodeJS.EventEmitter, env: Readonly<Record<string, string | undefined>>): Output {
  const coloured = sink.isTTY === true && (env['NO_COLOR'] ?? '') === '' && env['TERM'] !== 'dumb'
  return {
    async write(text) {
      if (!sink.write(text)) await once(sink, 'drain')
    },
    style: (emphasis, text) => (coloured ? styleText(emphasis, text, { validateStream: false }) : text),
  }
}

/** Characters that JSON and YAML do not escape, but that control terminals or change the direction of text. */
const steering = /[\u007f-\u009f\u2028\u2029\p{Bidi_Control}]/gu

/** Formats JSON with an indent of two spaces, without a final line end. Escapes characters that control terminals. */
export function jsonText(value: unknown): string {
  return JSON.stringify(value, undefined, 2).replaceAll(steering, escaped)
}

/** Formats JSON on one line, without a final line end. Escapes characters that control terminals. */
export function jsonLine(value: unknown): string {
  return JSON.stringify(value).replaceAll(steering, escaped)
}

/**
 * Formats YAML with a final line end. Quotes strings so that YAML 1.1 and 1.2 readers get the same values. Escapes characters that control
 * terminals.
 */
export async function yamlText(value: unknown): Promise<string> {
  // Loaded when needed: it takes a sixth of a command's start.
  const { stringify } = await import('yaml')
  const plain = stringify(value, { lineWidth: 0, version: '1.1' })
  if (plain.search(steering) < 0) return plain
  // Only quoted strings can contain escapes.
  return stringify(value, { lineWidth: 0, version: '1.1', defaultStringType: 'QUOTE_DOUBLE', defaultKeyType: 'QUOTE_DOUBLE' }).replaceAll(steering, escaped)
}

function escaped(character: string): string {
  return `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`
}

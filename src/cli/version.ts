import { readFileSync } from 'node:fs'
import { join } from 'node:path'

/** As package.json has it. */
export function version(): string {
  // Our own file: it has a version.
  const { version: text } = JSON.parse(readFileSync(join(import.meta.dirname, '..', '..', 'package.json'), 'utf8')) as { version: string }
  return text
}

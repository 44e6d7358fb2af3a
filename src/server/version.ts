import { readFileSync } from 'node:fs'
import { join } from 'node:path'

/** Returns the version in package.json. */
export function version(): string {
  // a cast: package.json has a version
  const { version: text } = JSON.parse(readFileSync(join(import.meta.dirname, '..', '..', 'package.json'), 'utf8')) as { version: string }
  return text
}

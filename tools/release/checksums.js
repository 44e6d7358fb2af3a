// Writes the checksums of a release. Plain JavaScript for Node 20, without packages.
import { createHash } from 'node:crypto'
import { readFileSync, readdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'

/** Writes `SHA256SUMS` about all files of the folder, in the form that `sha256sum --check` reads. */
export function writeChecksums(output) {
  const files = readdirSync(output, { withFileTypes: true }).filter((entry) => entry.isFile())
  const lines = files.map(
    ({ name }) =>
      `${createHash('sha256')
        .update(readFileSync(join(output, name)))
        .digest('hex')}  ${name}\n`,
  )
  writeFileSync(join(output, 'SHA256SUMS'), lines.sort().join(''))
}

import { contentLimits } from '../../package.ts'
import type { LayerPackage } from '../layer-package.ts'
import type { Reader } from '../reader.ts'
import { fieldsOf, paragraphs, unixLines } from './fields.ts'

/** States of a package whose files are not there. */
const absent = ['not-installed', 'config-files']

function debianPackage(fields: ReadonlyMap<string, string>): LayerPackage {
  const [name = '', version = '', arch, source = ''] = ['package', 'version', 'architecture', 'source'].map((key) => fields.get(key))
  // `Source: name (version)`; the version is there if it differs.
  const [, origin = '', originVersion] = /^(\S+)(?:\s+\(([^)]*)\))?/.exec(source) ?? []
  const upstream = originVersion === undefined ? origin : `${origin}@${originVersion}`
  const qualifiers = { ...(arch === undefined ? {} : { arch }), ...(origin === '' ? {} : { upstream }) }
  return { type: 'deb', name, version, url: { qualifiers }, origin: origin === name ? '' : origin }
}

/** The database of dpkg. Images without dpkg have a file for each package in `status.d`. */
export const dpkg: Reader = {
  wants: (path) => path === 'var/lib/dpkg/status' || (/^var\/lib\/dpkg\/status\.d\/[^/]+$/.test(path) && !path.endsWith('.md5sums')),
  async read(file, findings) {
    for (const paragraph of paragraphs(unixLines(await file.bytes(contentLimits.parsedFileBytes)))) {
      const fields = fieldsOf(paragraph)
      const state = fields.get('status')?.split(/\s+/)[2]
      if (state === undefined || !absent.includes(state)) findings.add(debianPackage(fields))
    }
  },
}

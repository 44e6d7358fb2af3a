import type { Reader } from '../reader.ts'
import { fieldsOf, unixLines } from './fields.ts'

/** A description, which may be long, follows the fields. */
const maxBytes = 4 * 1024 * 1024
const metadata = /(^|\/)([^/]+\.dist-info\/METADATA|([^/]+\.egg-info|EGG-INFO)\/PKG-INFO|[^/]+\.egg-info)$/

/** Metadata of installed Python packages (PEP 376, PEP 566). */
export const python: Reader = {
  wants: (path) => metadata.test(path),
  async read(file, findings) {
    const [head = ''] = unixLines(await file.bytes(maxBytes)).split('\n\n', 1)
    const fields = fieldsOf(head)
    const [name = '', version = '', expression, license] = ['name', 'version', 'license-expression', 'license'].map((key) => fields.get(key))
    // Names in package URLs are normalised (PEP 503).
    const normalised = name.toLowerCase().replaceAll(/[-_.]+/g, '-')
    findings.add({ type: 'pypi', name, version, url: { name: normalised }, licenses: [expression ?? license ?? ''] })
  },
}

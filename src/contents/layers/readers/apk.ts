import { contentLimits } from '../../package.ts'
import type { Reader } from '../reader.ts'
import { paragraphs } from './fields.ts'

/** Returns the fields with one letter that describe the package. Those of its files come after them. */
function packageFields(paragraph: string): ReadonlyMap<string, string> {
  const fields = new Map<string, string>()
  for (const line of paragraph.split('\n')) if (line[1] === ':' && !fields.has(line.charAt(0))) fields.set(line.charAt(0), line.slice(2).trim())
  return fields
}

/** The database of apk: one paragraph for each package. */
export const apk: Reader = {
  wants: (path) => /^(usr\/)?lib\/apk\/db\/installed$/.test(path),
  async read(file, findings) {
    const text = (await file.bytes(contentLimits.parsedFileBytes)).toString('utf8')
    for (const paragraph of paragraphs(text)) {
      const fields = packageFields(paragraph)
      const [name = '', version = '', arch, origin = '', license = ''] = ['P', 'V', 'A', 'o', 'L'].map((key) => fields.get(key))
      const other = origin === name ? '' : origin
      const qualifiers = { ...(arch === undefined ? {} : { arch }), ...(other === '' ? {} : { upstream: other }) }
      findings.add({ type: 'apk', name, version, url: { qualifiers }, origin: other, licenses: [license] })
    }
  },
}

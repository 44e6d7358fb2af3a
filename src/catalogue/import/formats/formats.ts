import type { DocumentFormat } from '../format.ts'
import { isMembers, RefusedDocument, type Members } from '../members.ts'
import { epss, kev } from './exploitation.ts'
import { nvd } from './nvd.ts'
import { apkDatabase } from './apk-database.ts'
import { csaf } from './csaf.ts'
import { cyclonedx } from './cyclonedx.ts'
import { lifecycleCycle, lifecycleProduct } from './lifecycle.ts'
import { maven } from './maven.ts'
import { npm } from './npm.ts'
import { openvex } from './openvex.ts'
import { osv } from './osv.ts'
import { packageAdvisories } from './package-advisories.ts'
import { pypiProject, pypiSimple } from './pypi.ts'

/** All forms of documents. The first one that recognises a document reads it: npm before OSV, whose only sign may be `modified`. */
const formats: readonly DocumentFormat[] = [
  npm,
  pypiProject,
  pypiSimple,
  maven,
  osv,
  nvd,
  epss,
  kev,
  openvex,
  csaf,
  cyclonedx,
  packageAdvisories,
  apkDatabase,
  lifecycleCycle,
  lifecycleProduct,
]

/** Returns the document with its form. Throws RefusedDocument if no form recognises it. */
export function formatOf(value: unknown): { readonly format: DocumentFormat; readonly document: Members } {
  if (!isMembers(value)) throw new RefusedDocument('the document is no object')
  const format = formats.find(({ recognises }) => recognises(value))
  if (format === undefined) throw new RefusedDocument(`the document has none of the known forms: ${formats.map(({ name }) => name).join(', ')}`)
  return { format, document: value }
}

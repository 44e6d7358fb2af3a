import type { DocumentFormat } from '../format.ts'
import { isMembers, RefusedDocument, type Members } from '../members.ts'
import { epss, kev } from './exploitation.ts'
import { nvd } from './nvd.ts'
import { maven } from './maven.ts'
import { npm } from './npm.ts'
import { osv } from './osv.ts'
import { pypiProject, pypiSimple } from './pypi.ts'

/** All forms of documents. The first one that recognises a document reads it. */
const formats: readonly DocumentFormat[] = [pypiProject, pypiSimple, npm, maven, osv, nvd, epss, kev]

/** Returns the document with its form. Throws RefusedDocument if no form recognises it. */
export function formatOf(value: unknown): { readonly format: DocumentFormat; readonly document: Members } {
  if (!isMembers(value)) throw new RefusedDocument('the document is no object')
  const format = formats.find(({ recognises }) => recognises(value))
  if (format === undefined) throw new RefusedDocument(`the document has none of the known forms: ${formats.map(({ name }) => name).join(', ')}`)
  return { format, document: value }
}

import { readFileSync } from 'node:fs'
import { LineCounter, parseDocument } from 'yaml'
import { errorMessage } from '../base/error-text.ts'
import { isTree, withoutNulls, type Tree } from './tree.ts'

/** What a configuration file says, or why it can't be read: one line per fault. Keys without a value are left out. */
export function readConfigFile(file: string): { readonly tree: Tree; readonly faults: readonly string[] } {
  let source: string
  try {
    source = readFileSync(file, 'utf8')
  } catch (cause) {
    return { tree: {}, faults: [`${file}: can't be read: ${errorMessage(cause)}`] }
  }
  const lines = new LineCounter()
  const document = parseDocument(source, { lineCounter: lines, prettyErrors: false })
  if (document.errors.length > 0) {
    return { tree: {}, faults: document.errors.map((error) => `${file}: line ${lines.linePos(error.pos[0]).line}: not YAML: ${error.message}`) }
  }
  const content: unknown = withoutNulls(document.toJS({ maxAliasCount: 100 }) ?? {})
  return isTree(content)
    ? { tree: content, faults: [] }
    : { tree: {}, faults: [`${file}: expected a mapping of keys, e.g. "baseUrl: https://platform.example.com"`] }
}

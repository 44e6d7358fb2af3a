import { Composer, isScalar, LineCounter, Parser, type Document, type Node } from 'yaml'
import { RefusedDocument } from './members.ts'

/** The longest text, in characters. YAML takes much longer to parse than JSON. */
const maxYamlLength = 2 * 1024 * 1024
/** The number of aliases that a document may resolve: a few nested ones can make any size. */
const maxAliases = 100
/** The number of times that keys of one text are compared. The library compares each key of a mapping with all before it: 4,000 keys need 8 million. */
const maxComparisons = 10_000_000

function invalid(problem: string): RefusedDocument {
  return new RefusedDocument(`the text is not valid YAML: ${problem}`)
}

/** Compares keys, which are scalars, until there were too many. */
function boundedComparison(): (one: Node, other: Node) => boolean {
  let left = maxComparisons
  return (one, other) => {
    left -= 1
    if (left < 0) throw new RefusedDocument('the YAML mappings have too many keys')
    return isScalar(one) && isScalar(other) && one.value === other.value
  }
}

function valueOf(document: Document.Parsed, lines: LineCounter): unknown {
  const [error] = document.errors
  if (error === undefined) {
    const value: unknown = document.toJS({ maxAliasCount: maxAliases })
    return value
  }
  const { line, col } = lines.linePos(error.pos[0])
  throw invalid(`${error.message.split('\n', 1)[0] ?? ''} at line ${line}, column ${col}`)
}

/** Returns the values of all documents in the text. Throws RefusedDocument if one of them is not valid, and beyond the bounds. */
export function parseYaml(text: string): unknown[] {
  if (text.length > maxYamlLength) throw new RefusedDocument(`the YAML document is larger than ${maxYamlLength / 1024 / 1024} MiB`)
  const lines = new LineCounter()
  // The core schema has no dates and no tags: it makes what JSON can say. Pretty errors have a picture of the place, whose line may have any length.
  const options = { schema: 'core', stringKeys: true, prettyErrors: false, uniqueKeys: boundedComparison() } as const
  try {
    const documents = new Composer(options).compose(new Parser(lines.addNewLine).parse(text))
    return Array.from(documents, (document) => valueOf(document, lines))
  } catch (error) {
    if (error instanceof RefusedDocument) throw error
    throw invalid(error instanceof Error ? error.message : '')
  }
}

// Extracts the comments of TypeScript, as a page for textlint.
import ts from 'typescript'

/** Returns the text of all comments. All other text is replaced by empty lines, so that line numbers stay the same. */
export function commentsOf(source) {
  const { text } = source
  const lines = text.split('\n').map(() => '')
  const seen = new Set()
  const add = (range) => {
    if (seen.has(range.pos)) return
    seen.add(range.pos)
    const first = source.getLineAndCharacterOfPosition(range.pos).line
    for (const [at, line] of text.slice(range.pos, range.end).split('\n').entries()) lines[first + at] = wordsOf(line)
  }
  const visit = (node) => {
    for (const range of ts.getLeadingCommentRanges(text, node.pos) ?? []) add(range)
    for (const range of ts.getTrailingCommentRanges(text, node.end) ?? []) add(range)
    for (const child of node.getChildren(source)) visit(child)
  }
  visit(source)
  return lines.join('\n')
}

/** Returns the text in a line of a comment, without comment marks and indent. Returns an empty text for directives to tools. */
function wordsOf(line) {
  const words = line
    .trim()
    .replace(/^(?:\/\*\*?|\*\/|\*(?!\/)|\/\/)/, '')
    .replace(/\*\/$/, '')
    .trim()
  return /^(?:eslint-|@ts-|prettier-ignore|v8 ignore|<reference)/.test(words) ? '' : words
}

// The comments of TypeScript, as a page that textlint reads.
import ts from 'typescript'

/** The text with only the words of its comments: everything else is gone, but each line keeps its number. */
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

/** A line of a comment without its marks and indent, and without directives for tools. */
function wordsOf(line) {
  const words = line
    .trim()
    .replace(/^(?:\/\*\*?|\*\/|\*(?!\/)|\/\/)/, '')
    .replace(/\*\/$/, '')
    .trim()
  return /^(?:eslint-|@ts-|prettier-ignore|v8 ignore|<reference)/.test(words) ? '' : words
}

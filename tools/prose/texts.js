// Extracts the texts that people read in files other than Markdown, as pages for textlint. A page is Markdown, together with the file's
// line number for each of its lines.
import ts from 'typescript'
import { commentsOf } from './comments.js'

/** Returns the text of a literal. An expression in a template counts as one word. */
function literalText(node) {
  if (ts.isStringLiteralLike(node)) return node.text
  if (!ts.isTemplateExpression(node)) return undefined
  return node.head.text + node.templateSpans.map((span) => `X${span.literal.text}`).join('')
}

const isProse = (text) => /\w[,;:]? +[a-z]/.test(text)

/** Returns all literals that contain words: texts of errors, help, log lines, descriptions. */
function literals(source) {
  const nodes = []
  const visit = (node) => {
    const text = literalText(node)
    if (text !== undefined && isProse(text)) nodes.push(node)
    ts.forEachChild(node, visit)
  }
  visit(source)
  return nodes
}

const titled = new Set(['describe', 'test', 'it'])
const calledName = (node) => (ts.isIdentifier(node) ? node.text : 'expression' in node ? calledName(node.expression) : undefined)

/** Returns the titles of tests: the first arguments of calls, and the first text in each row of a table. */
function titles(source) {
  const nodes = []
  const visit = (node) => {
    const first = ts.isCallExpression(node) && titled.has(calledName(node.expression)) ? node.arguments[0] : undefined
    if (first !== undefined) nodes.push(...(ts.isArrayLiteralExpression(first) ? first.elements : [first]).map(titleOf))
    ts.forEachChild(node, visit)
  }
  visit(source)
  return nodes.filter((node) => literalText(node) !== undefined)
}

const titleOf = (row) => (ts.isArrayLiteralExpression(row) ? (row.elements[0] ?? row) : row)

/** Returns a page with one paragraph for each literal. */
function pageOf(source, nodes) {
  const lines = []
  const from = []
  for (const node of nodes) {
    const line = source.getLineAndCharacterOfPosition(node.getStart()).line + 1
    for (const part of literalText(node).split('\n')) {
      lines.push(part.trim(), '')
      from.push(line, line)
    }
  }
  return { text: lines.join('\n'), from }
}

const numbered = (text) => ({ text, from: text.split('\n').map((_, at) => at + 1) })

/** Returns a page with the first group of each match of a pattern. Line numbers stay the same. */
function found(pattern, text) {
  const lines = text.split('\n').map(() => '')
  for (const match of text.matchAll(pattern)) {
    const first = text.slice(0, match.index).split('\n').length - 1
    for (const [at, line] of match[1].split('\n').entries()) lines[first + at] = line.trim()
  }
  return numbered(lines.join('\n'))
}

const protoComment = /\/\/ ?(?!buf:)(.*)/g
const hashComment = /(?<=^|\s)#(?!!) ?(.*)/gm
const templateComment = /\{\{-?\s*\/\*\s*([^]*?)\s*\*\/\s*-?\}\}/g
const templateFault = /\$faults (?:\(printf )?"([^"\n]*)"/g

/** Returns a page with the text that a template shows. An expression counts as one word; lines of commands are code and left out. */
function shownOf(text) {
  const lines = text.split('\n').map((line) => (/^\s*\{\{[^}]*\}\}\s*$/.test(line) || /^ {2}/.test(line) ? '' : line.replaceAll(/\{\{.*?\}\}/g, 'X')))
  return numbered(lines.join('\n'))
}

/**
 * Returns the pages of a file: its comments, and its texts or titles.
 * @returns {{ text: string, from: number[] }[]}
 */
export function pagesOf(path, text) {
  if (/\.[tj]s$/.test(path)) {
    const source = ts.createSourceFile(path, text, ts.ScriptTarget.Latest, true)
    const nodes = /^test\/|\.test\.ts$/.test(path) ? titles(source) : literals(source)
    return [numbered(commentsOf(source)), pageOf(source, nodes)]
  }
  if (path.endsWith('.proto')) return [found(protoComment, text)]
  if (path.endsWith('.txt')) return [shownOf(text)]
  if (path.includes('/templates/')) {
    return [found(templateComment, text), found(templateFault, text)]
  }
  return [found(hashComment, text)]
}

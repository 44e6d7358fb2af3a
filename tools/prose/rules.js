// The textlint rules of tools/prose.js.
import { StringSource } from 'textlint-util-to-string'

const segmenter = new Intl.Segmenter('en', { granularity: 'sentence' })

/** Returns the text in a form in which the segmenter finds the ends of sentences. Every character keeps its position. */
function sentences(text, isCell) {
  const line = text.replaceAll('\n', ' ')
  return isCell ? line.replaceAll('; ', ';\n') : line
}

/**
 * Rule: reports sentences of more than `options.words` words in paragraphs, list items, headings and table cells. Inline code counts as
 * one word. In a table cell, a semicolon ends a sentence.
 */
export function sentenceLength(context, options) {
  const { Syntax, RuleError, report, locator } = context
  const check = (node) => {
    const replacer = ({ node: part, maskValue }) => (part.type === Syntax.Code ? maskValue('X') : undefined)
    const source = new StringSource(node, { replacer })
    for (const { segment, index } of segmenter.segment(sentences(source.toString(), node.type === Syntax.TableCell))) {
      const words = segment.split(/\s+/).filter((word) => /[\p{L}\p{N}…]/u.test(word)).length
      if (words <= options.words) continue
      const start = source.originalIndexFromIndex(index) ?? 0
      const opening = segment.slice(0, 60).replaceAll(/\s+/g, ' ')
      report(node, new RuleError(`${words} words, ${options.words} are allowed: "${opening}…"`, { padding: locator.at(start) }))
    }
  }
  return { [Syntax.Paragraph]: check, [Syntax.Header]: check, [Syntax.TableCell]: check }
}

/** Rule: reports the words in `options.words`, which are patterns for whole words in any letter case. Ignores code. */
export function words(context, options) {
  const { Syntax, RuleError, report, locator, getSource } = context
  const pattern = new RegExp(`(?<![\\w-])(?:${options.words.join('|')})(?![\\w-])`, 'gi')
  return {
    [Syntax.Str](node) {
      for (const match of getSource(node).matchAll(pattern)) {
        report(node, new RuleError(`"${match[0]}": use a plainer word`, { padding: locator.at(match.index) }))
      }
    },
  }
}

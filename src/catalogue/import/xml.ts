import sax from 'sax'
import { RefusedDocument } from './members.ts'

/** The largest document, in characters, and the deepest nesting of elements and number of elements in it. */
const maxXmlLength = 8 * 1024 * 1024
const maxDepth = 32
const maxElements = 200_000

/** An XML element: its name without prefix, its own text, and the elements in it. */
export interface XmlElement {
  readonly name: string
  readonly children: readonly XmlElement[]
  readonly text: string
}

/** A document in XML, as imports pass it to formats. */
export class XmlDocument {
  readonly root: XmlElement

  constructor(root: XmlElement) {
    this.root = root
  }
}

/** An element that is being read. */
interface OpenElement {
  readonly name: string
  readonly children: XmlElement[]
  text: string
}

/**
 * Parses XML. Attributes and comments are ignored. A document type is refused: it could define entities, of which a few make any size, or name files. Throws
 * RefusedDocument for that, for XML that is not well-formed, and beyond the bounds.
 */
export function parseXml(text: string): XmlDocument {
  if (text.length > maxXmlLength) throw new RefusedDocument(`the XML document is larger than ${maxXmlLength / 1024 / 1024} MiB`)
  const parser = sax.parser(true, { trim: false, normalize: false })
  const outer: OpenElement = { name: '', children: [], text: '' }
  const open = [outer]
  let elements = 0
  const refuse = (reason: string): never => {
    throw new RefusedDocument(reason)
  }
  parser.onerror = (error) => refuse(`the text is not valid XML: ${error.message.split('\n', 1)[0] ?? ''}`)
  parser.ondoctype = () => refuse('the XML document has a document type')
  parser.onopentag = ({ name }) => {
    elements += 1
    if (open.length > maxDepth) refuse(`the XML document has more than ${maxDepth} levels`)
    if (elements > maxElements) refuse(`the XML document has more than ${maxElements} elements`)
    open.push({ name: name.replace(/^.*:/, ''), children: [], text: '' })
  }
  const addText = (part: string): void => {
    const inner = open.at(-1)
    if (inner !== undefined) inner.text += part
  }
  parser.ontext = addText
  parser.oncdata = addText
  parser.onclosetag = () => {
    const closed = open.pop()
    if (closed !== undefined) open.at(-1)?.children.push({ ...closed, text: closed.text.trim() })
  }
  parser.write(text).close()
  const [root] = outer.children
  return root === undefined ? refuse('the XML document has no element') : new XmlDocument(root)
}

/** Returns the elements with a name in an element. */
export function childrenOf(element: XmlElement | undefined, name: string): readonly XmlElement[] {
  return element?.children.filter((child) => child.name === name) ?? []
}

/** Returns the text of the first element with a name in an element; empty if there is none. */
export function textIn(element: XmlElement | undefined, name: string): string {
  return childrenOf(element, name)[0]?.text ?? ''
}

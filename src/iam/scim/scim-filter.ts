import { scimError } from './scim-error.ts'
import { findTarget, type ScimAttribute, type ScimAttributes, type ScimTarget } from './scim-schema.ts'
import { comparedName } from './scim-values.ts'

const comparisons = ['eq', 'ne', 'co', 'sw', 'ew', 'gt', 'ge', 'lt', 'le'] as const
type Comparison = (typeof comparisons)[number]

/** Value to compare with. A string is in its `comparedForm`. */
export type Literal = string | number | boolean | null

/**
 * A parsed filter (RFC 7644 3.4.2.2); its attributes are in the schema. `some` matches if one value of an attribute matches the inner
 * filter. The targets of the inner filter are sub-attributes of that value.
 */
export type ScimFilter =
  | { readonly kind: 'and' | 'or'; readonly parts: readonly ScimFilter[] }
  | { readonly kind: 'not'; readonly part: ScimFilter }
  | { readonly kind: 'some'; readonly target: ScimTarget; readonly part: ScimFilter }
  | { readonly kind: 'present'; readonly target: ScimTarget }
  | { readonly kind: 'compare'; readonly target: ScimTarget; readonly op: Comparison; readonly literal: Literal }

const maxLength = 4096
const maxDepth = 20
const maxParts = 100

interface FilterToken {
  readonly kind: 'mark' | 'word' | 'literal'
  readonly text: string
  readonly literal?: Literal
}

function refuse(detail: string): never {
  throw scimError('invalidFilter', detail)
}

const tokenPattern = /\s+|([()[\]])|("(?:[^"\\]|\\.)*")|(-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)(?![\w.:-])|([A-Za-z$][\w.:$-]*)/y
const constants: ReadonlyMap<string, Literal> = new Map<string, Literal>([
  ['true', true],
  ['false', false],
  ['null', null],
])

/** Returns the value of a JSON string. */
function unquoted(text: string): string {
  try {
    return String(JSON.parse(text))
  } catch {
    return refuse('a string in the filter is not valid JSON')
  }
}

function tokenOf([, mark, quoted, number, word]: RegExpExecArray): FilterToken | undefined {
  if (mark !== undefined) return { kind: 'mark', text: mark }
  if (quoted !== undefined) return { kind: 'literal', text: quoted, literal: unquoted(quoted) }
  if (number !== undefined) return { kind: 'literal', text: number, literal: Number(number) }
  if (word === undefined) return undefined
  const constant = constants.get(word.toLowerCase())
  return constant === undefined ? { kind: 'word', text: word } : { kind: 'literal', text: word, literal: constant }
}

function tokensOf(text: string): FilterToken[] {
  const tokens: FilterToken[] = []
  tokenPattern.lastIndex = 0
  while (tokenPattern.lastIndex < text.length) {
    const at = tokenPattern.lastIndex
    const match = tokenPattern.exec(text)
    if (match === null) return refuse(`the filter has a syntax error at character ${at + 1}`)
    const token = tokenOf(match)
    if (token !== undefined) tokens.push(token)
  }
  return tokens
}

/** Finds the attribute for a name in a filter. */
type Lookup = (path: string) => ScimTarget | undefined

/** Returns a lookup for names inside the brackets of `attribute[...]`: sub-attributes of one value. */
function within(subAttributes: ScimAttributes): Lookup {
  return (path) => {
    const attribute = subAttributes.get(path.toLowerCase())
    return attribute === undefined ? undefined : { attribute, sub: undefined, enterprise: false }
  }
}

/** Recursive descent parser of filters, with limits on depth and length. */
class FilterReader {
  readonly #tokens: readonly FilterToken[]
  #at = 0
  #parts = 0

  constructor(tokens: readonly FilterToken[]) {
    this.#tokens = tokens
  }

  whole(lookup: Lookup): ScimFilter {
    const filter = this.#either(lookup, 0)
    if (this.#at < this.#tokens.length) refuse(`unexpected ${this.#peek()?.text.slice(0, 100)}`)
    return filter
  }

  #peek(): FilterToken | undefined {
    return this.#tokens[this.#at]
  }

  #takesWord(word: string): boolean {
    const token = this.#peek()
    const isIt = token?.kind === 'word' && token.text.toLowerCase() === word
    if (isIt) this.#at += 1
    return isIt
  }

  #takesMark(mark: string): boolean {
    const token = this.#peek()
    const isIt = token?.kind === 'mark' && token.text === mark
    if (isIt) this.#at += 1
    return isIt
  }

  #expectMark(mark: string): void {
    if (!this.#takesMark(mark)) refuse(`${mark} is missing`)
  }

  #either(lookup: Lookup, depth: number): ScimFilter {
    const parts = [this.#both(lookup, depth)]
    while (this.#takesWord('or')) parts.push(this.#both(lookup, depth))
    return parts.length === 1 && parts[0] !== undefined ? parts[0] : { kind: 'or', parts }
  }

  #both(lookup: Lookup, depth: number): ScimFilter {
    const parts = [this.#one(lookup, depth)]
    while (this.#takesWord('and')) parts.push(this.#one(lookup, depth))
    return parts.length === 1 && parts[0] !== undefined ? parts[0] : { kind: 'and', parts }
  }

  #one(lookup: Lookup, depth: number): ScimFilter {
    this.#parts += 1
    if (depth > maxDepth || this.#parts > maxParts) refuse('the filter is nested too deeply, or has too many parts: use a shorter filter')
    if (this.#takesWord('not')) {
      if (this.#peek()?.text !== '(') refuse('not must be followed by (')
      return { kind: 'not', part: this.#one(lookup, depth + 1) }
    }
    if (!this.#takesMark('(')) return this.#condition(lookup, depth)
    const inner = this.#either(lookup, depth + 1)
    this.#expectMark(')')
    return inner
  }

  #condition(lookup: Lookup, depth: number): ScimFilter {
    const name = this.#peek()
    if (name?.kind !== 'word') return refuse('the name of an attribute is missing')
    this.#at += 1
    const target = lookup(name.text)
    if (target?.attribute === undefined) return refuse(`no attribute ${name.text.slice(0, 100)}`)
    if (this.#takesMark('[')) return this.#some(target, depth)
    if (this.#takesWord('pr')) return { kind: 'present', target }
    const op = comparisons.find((comparison) => this.#takesWord(comparison)) ?? refuse(`an operator is missing after ${name.text.slice(0, 100)}`)
    const token = this.#peek()
    if (token?.literal === undefined) return refuse(`a value is missing after ${op}`)
    this.#at += 1
    return { kind: 'compare', target, op, literal: comparable(target, op, token.literal) }
  }

  #some(target: ScimTarget, depth: number): ScimFilter {
    const subAttributes = (target.sub ?? target.attribute)?.subAttributes
    if (subAttributes === undefined) return refuse('only a complex attribute may have a filter in brackets')
    const part = this.#either(within(subAttributes), depth + 1)
    this.#expectMark(']')
    return { kind: 'some', target, part }
  }
}

/** Returns the attribute to compare. For a complex attribute, this is its `value` (RFC 7643 2.4). */
export function comparedAttribute({ attribute, sub }: ScimTarget): ScimAttribute | undefined {
  const named = sub ?? attribute
  return named?.subAttributes === undefined ? named : named.subAttributes.get('value')
}

/** Returns a string in the form in which it is compared with values of the attribute. Times are converted to one zone and length. */
export function comparedForm({ type, caseExact }: ScimAttribute, text: string): string {
  if (type === 'dateTime') return new Date(text).toISOString()
  return caseExact ? text : comparedName(text)
}

/** Converts a literal to the compared form of the attribute. Throws `invalidFilter` if they cannot be compared. */
function comparable(target: ScimTarget, op: Comparison, literal: Literal): Literal {
  const attribute = comparedAttribute(target)
  if (attribute === undefined) return refuse('a complex attribute cannot be compared: use one of its sub-attributes')
  const isEquality = op === 'eq' || op === 'ne'
  if (literal === null) return isEquality ? null : refuse(`null cannot be compared by ${op}`)
  if (attribute.type === 'boolean') {
    const constant = typeof literal === 'string' ? constants.get(literal.toLowerCase()) : literal
    return isEquality && typeof constant === 'boolean' ? constant : refuse(`${attribute.name} can only be compared with true and false, by eq and ne`)
  }
  if (typeof literal !== 'string') return refuse(`${attribute.name} can only be compared with a string`)
  if (attribute.type === 'dateTime' && Number.isNaN(Date.parse(literal))) refuse(`${attribute.name} can only be compared with a date and time`)
  return comparedForm(attribute, literal)
}

/** Parses a filter. Throws `invalidFilter`. */
export function parseFilter(text: string): ScimFilter {
  if (text.length > maxLength) refuse(`a filter must not be longer than ${maxLength} characters`)
  return new FilterReader(tokensOf(text)).whole(findTarget)
}

/**
 * Returns the string that the attribute must equal so that the filter matches, in its `comparedForm`; undefined if the filter requires
 * none. `name` is in lower case.
 */
export function requiredText(filter: ScimFilter, name: string): string | undefined {
  if (filter.kind === 'and') return filter.parts.map((part) => requiredText(part, name)).find((text) => text !== undefined)
  if (filter.kind !== 'compare' || filter.op !== 'eq' || typeof filter.literal !== 'string') return undefined
  const { attribute, sub, enterprise } = filter.target
  return !enterprise && sub === undefined && attribute?.name.toLowerCase() === name ? filter.literal : undefined
}

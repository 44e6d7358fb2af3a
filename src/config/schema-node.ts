import type { ValueFormat } from './formats.ts'

/** A section of the configuration, with its keys. */
export interface SectionNode {
  readonly type: 'object'
  readonly description: string
  readonly properties: Readonly<Record<string, SchemaNode>>
  readonly required?: readonly string[]
  readonly additionalProperties: false
}

/** A list of texts or of objects. */
export interface ListNode {
  readonly type: 'array'
  readonly description: string
  readonly items: SchemaNode
  readonly default?: readonly unknown[]
}

/** A text, which may have a format or be one of a few values. */
export interface TextNode {
  readonly type: 'string'
  readonly description: string
  readonly minLength: number
  readonly format?: ValueFormat
  readonly enum?: readonly string[]
  readonly default?: string
}

/** A number within limits. */
export interface NumberNode {
  readonly type: 'integer' | 'number'
  readonly description: string
  readonly minimum: number
  readonly maximum: number
  readonly default?: number
}

/** Returns the schema of a memory size in whole megabytes (1,000,000 bytes each). */
export function megabytes(description: string, defaultValue: number): NumberNode {
  return { type: 'integer', description, minimum: 0, maximum: 1_000_000, default: defaultValue }
}

/** A boolean. */
export interface FlagNode {
  readonly type: 'boolean'
  readonly description: string
  readonly default?: boolean
}

/** A node of the configuration's JSON Schema. Only these few forms are used. */
export type SchemaNode = SectionNode | ListNode | TextNode | NumberNode | FlagNode

/** The type of the schema for a configuration type. A key without a node, or a node without a key, does not compile. */
export type NodeFor<T> = T extends readonly (infer E)[]
  ? ListNode & { readonly items: NodeFor<E> }
  : T extends object
    ? SectionNode & { readonly properties: { readonly [K in keyof T]-?: NodeFor<NonNullable<T[K]>> } }
    : T extends number
      ? NumberNode
      : T extends boolean
        ? FlagNode
        : TextNode

/** Returns the schema of a section with these keys. A section that is given must contain the `required` ones. */
export function section<const P extends Readonly<Record<string, SchemaNode>>>(
  description: string,
  properties: P,
  required: readonly (keyof P & string)[] = [],
) {
  return { type: 'object', description, properties, ...(required.length > 0 ? { required } : {}), additionalProperties: false } as const
}

/** Returns the schema of a list. */
export function list<const N extends SchemaNode>(description: string, items: N, defaultValue?: readonly unknown[]) {
  return { type: 'array', description, items, ...(defaultValue === undefined ? {} : { default: defaultValue }) } as const
}

/** Returns the schema of a text that must not be empty. */
export function text(description: string, options: Pick<TextNode, 'format' | 'enum' | 'default'> = {}): TextNode {
  return { type: 'string', description, minLength: 1, ...options }
}

/** Returns the schema of a TCP port. */
export function port(description: string, defaultValue: number): NumberNode {
  return { type: 'integer', description, minimum: 1, maximum: 65_535, default: defaultValue }
}

/** Returns the schema of a number of days: a whole number of at least 0. */
export function days(description: string, defaultValue: number): NumberNode {
  return { type: 'integer', description, minimum: 0, maximum: 36_500, default: defaultValue }
}

/** Returns the schema of a whole number of at least 1. */
export function count(description: string, defaultValue?: number): NumberNode {
  return { type: 'integer', description, minimum: 1, maximum: 1_000_000, ...(defaultValue === undefined ? {} : { default: defaultValue }) }
}

/** Returns the schema of a whole number from 1 to `maximum`. */
export function upTo(maximum: number, description: string): NumberNode {
  return { type: 'integer', description, minimum: 1, maximum }
}

/** Returns the schema of a time in whole seconds, of at most an hour. */
export function seconds(description: string, defaultValue: number): NumberNode {
  return { type: 'integer', description, minimum: 0, maximum: 3600, default: defaultValue }
}

/** Returns the schema of a boolean. */
export function flag(description: string, defaultValue?: boolean): FlagNode {
  return { type: 'boolean', description, ...(defaultValue === undefined ? {} : { default: defaultValue }) }
}

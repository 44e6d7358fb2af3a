import type { ValueFormat } from './formats.ts'

/** A group of keys. */
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

/** Text, maybe of a format or one of a few words. */
export interface TextNode {
  readonly type: 'string'
  readonly description: string
  readonly minLength: number
  readonly format?: ValueFormat
  readonly enum?: readonly string[]
  readonly default?: string
}

/** A number within bounds. */
export interface NumberNode {
  readonly type: 'integer' | 'number'
  readonly description: string
  readonly minimum: number
  readonly maximum: number
  readonly default?: number
}

/** Memory in whole megabytes (1,000,000 bytes each). */
export function megabytes(description: string, defaultValue: number): NumberNode {
  return { type: 'integer', description, minimum: 0, maximum: 1_000_000, default: defaultValue }
}

/** Yes or no. */
export interface FlagNode {
  readonly type: 'boolean'
  readonly description: string
  readonly default?: boolean
}

/** A node of the configuration's JSON Schema: the few forms that a configuration needs. */
export type SchemaNode = SectionNode | ListNode | TextNode | NumberNode | FlagNode

/** The schema that a configuration type needs: a key without its node, or a node without its key, does not compile. */
export type NodeFor<T> = T extends readonly (infer E)[]
  ? ListNode & { readonly items: NodeFor<E> }
  : T extends object
    ? SectionNode & { readonly properties: { readonly [K in keyof T]-?: NodeFor<NonNullable<T[K]>> } }
    : T extends number
      ? NumberNode
      : T extends boolean
        ? FlagNode
        : TextNode

/** A section with these keys; `required` ones must be in it wherever it is given. */
export function section<const P extends Readonly<Record<string, SchemaNode>>>(
  description: string,
  properties: P,
  required: readonly (keyof P & string)[] = [],
) {
  return { type: 'object', description, properties, ...(required.length > 0 ? { required } : {}), additionalProperties: false } as const
}

/** A list. */
export function list<const N extends SchemaNode>(description: string, items: N, defaultValue?: readonly unknown[]) {
  return { type: 'array', description, items, ...(defaultValue === undefined ? {} : { default: defaultValue }) } as const
}

/** Text that is not empty. */
export function text(description: string, options: Pick<TextNode, 'format' | 'enum' | 'default'> = {}): TextNode {
  return { type: 'string', description, minLength: 1, ...options }
}

/** A TCP port. */
export function port(description: string, defaultValue: number): NumberNode {
  return { type: 'integer', description, minimum: 1, maximum: 65_535, default: defaultValue }
}

/** A whole number of days, or 0. */
export function days(description: string, defaultValue: number): NumberNode {
  return { type: 'integer', description, minimum: 0, maximum: 36_500, default: defaultValue }
}

/** A whole number of at least 1. */
export function count(description: string, defaultValue?: number): NumberNode {
  return { type: 'integer', description, minimum: 1, maximum: 1_000_000, ...(defaultValue === undefined ? {} : { default: defaultValue }) }
}

/** A time in whole seconds, an hour at most. */
export function seconds(description: string, defaultValue: number): NumberNode {
  return { type: 'integer', description, minimum: 0, maximum: 3600, default: defaultValue }
}

/** Yes or no. */
export function flag(description: string, defaultValue?: boolean): FlagNode {
  return { type: 'boolean', description, ...(defaultValue === undefined ? {} : { default: defaultValue }) }
}

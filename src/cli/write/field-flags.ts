import { readFileSync } from 'node:fs'
import { ScalarType, type DescEnum, type DescField, type DescMessage } from '@bufbuild/protobuf'
import { Option } from 'commander'
import { capabilityByEnumNumber } from '../../base/capability.ts'
import { nearestName } from '../../base/nearest-name.ts'
import { fieldAccess } from '../../base/schema/field-behavior.ts'
import type { Json } from '../client/client-error.ts'
import { UsageError } from '../exit-codes.ts'

/** Values of options as the command line parser collects them, by the name of the option in camelCase. */
export type GivenFlags = Readonly<Record<string, unknown>>

/** An option of the command line that sets one field of a record. */
export interface FieldFlag {
  /** Name without dashes in front, such as `claim-match-issuer`. */
  readonly name: string
  /** Path of the field in JSON, such as `['claimMatch', 'issuer']`. */
  readonly path: readonly string[]
  /** Path of the field in an update mask, such as `claim_match.issuer`. */
  readonly maskPath: string
  readonly field: DescField
  /** The kind of record that the value names, by path or uid; undefined if it names none. */
  readonly reference: string | undefined
}

/** What a command may set of a record. */
export type FlagUse = 'create' | 'update'

/** The kinds of records that fields name, by the name of the field. */
const references: Readonly<Record<string, string>> = { identity_uid: 'Identity', role_uid: 'Role', default_role: 'Role', scope: 'Group' }

/** Fields that no option sets: the command sends them itself. */
const ownFields: ReadonlySet<string> = new Set(['uid', 'etag'])

/** Returns the options for the fields of a message that a caller may set. Messages within it have an option for each of their fields. */
export function fieldFlags(desc: DescMessage, use: FlagUse): readonly FieldFlag[] {
  return flagsBelow(desc, use, [])
}

function flagsBelow(desc: DescMessage, use: FlagUse, above: readonly DescField[]): FieldFlag[] {
  return desc.fields.flatMap((field) => {
    const { outputOnly, immutable } = fieldAccess(field)
    if (outputOnly || (immutable && use === 'update') || (above.length === 0 && ownFields.has(field.name))) return []
    const fields = [...above, field]
    if (isGroupOfFields(field)) return flagsBelow(field.message, use, fields)
    const reference = references[field.name]
    const names = fields.map(({ name }) => name)
    return [
      {
        name: names.join('-').replaceAll('_', '-').replace(/-uid$/, ''),
        path: fields.map(({ jsonName }) => jsonName),
        maskPath: names.join('.'),
        field,
        reference,
      },
    ]
  })
}

function isGroupOfFields(field: DescField): field is DescField & { fieldKind: 'message' } {
  return field.fieldKind === 'message' && !field.message.typeName.startsWith('google.protobuf.')
}

/** Returns the option of a flag for the command line parser. It collects the values of lists and maps. */
export function optionOf(flag: FieldFlag): Option {
  const { field } = flag
  const isSwitch = field.fieldKind === 'scalar' && field.scalar === ScalarType.BOOL
  const option = new Option(`--${flag.name} ${isSwitch ? '[true|false]' : `<${valueName(flag)}>`}`, describe(flag))
  if (isSwitch) return option.preset('true')
  if (field.fieldKind !== 'list' && field.fieldKind !== 'map') return option
  return option.argParser((text: string, before: readonly string[] | undefined) => [...(before ?? []), text])
}

function valueName({ field, reference }: FieldFlag): string {
  if (reference !== undefined) return reference.toLowerCase()
  if (field.fieldKind === 'map') return field.mapKind === 'message' ? 'key=json' : 'key=value'
  if (field.enum !== undefined) return 'name'
  if (field.message !== undefined) return wellKnownNames[field.message.typeName] ?? 'json'
  return field.scalar === ScalarType.STRING ? 'text' : 'number'
}

const wellKnownNames: Readonly<Record<string, string>> = { 'google.protobuf.Timestamp': 'time', 'google.protobuf.Duration': 'duration' }

function describe({ field, reference, path }: FieldFlag): string {
  const names = field.enum === undefined || field.enum.values.length > shownNames ? '' : namesOf(field.enum).join(', ')
  return [
    fieldAccess(field).required && path.length === 1 ? 'required' : '',
    reference === undefined ? '' : 'by its path or uid',
    names,
    field.fieldKind === 'list' || field.fieldKind === 'map' ? 'may be repeated' : '',
  ]
    .filter((text) => text !== '')
    .join('; ')
}

/** Longer lists of names are not shown in help texts. */
const shownNames = 8

/** Returns the names of an enum that the command line accepts: `applications` for CATALOG_TIER_APPLICATIONS, and `groups.list` for capabilities. */
function namesOf(desc: DescEnum): string[] {
  return desc.values.filter(({ number }) => number !== 0).map(({ name, number }) => shortName(desc, name, number))
}

function shortName(desc: DescEnum, name: string, number: number): string {
  if (desc.name === 'Capability') return capabilityByEnumNumber(number)?.name ?? name
  return name.slice(desc.sharedPrefix?.length ?? 0).toLowerCase()
}

/**
 * Returns the record that the options describe, as JSON. `@file` in place of a text is the content of the file, and `@@text` is `@text`. Throws
 * UsageError, which names the option.
 */
export function recordOf(flags: readonly FieldFlag[], given: GivenFlags): Json {
  const record: Record<string, unknown> = {}
  for (const flag of givenFlags(flags, given)) setAt(record, flag.path, valueOf(flag, given[keyOf(flag.name)]))
  return record
}

/** Returns the flags that the command line has. */
export function givenFlags(flags: readonly FieldFlag[], given: GivenFlags): readonly FieldFlag[] {
  return flags.filter(({ name }) => given[keyOf(name)] !== undefined)
}

/** Returns the name under which the parser keeps an option: `claimMatchIssuer` of `claim-match-issuer`. */
function keyOf(name: string): string {
  return name.replaceAll(/-(\w)/g, (_, letter: string) => letter.toUpperCase())
}

function setAt(record: Record<string, unknown>, [name = '', ...rest]: readonly string[], value: unknown): void {
  if (rest.length === 0) record[name] = value
  else setAt((record[name] ??= {}) as Record<string, unknown>, rest, value) // a cast: only this function makes the records within
}

function valueOf(flag: FieldFlag, given: unknown): unknown {
  const texts = [given].flat().map(String)
  const { field } = flag
  if (field.fieldKind === 'list') return texts.flatMap((text) => elementsOf(flag, text))
  if (field.fieldKind === 'map') return Object.fromEntries(texts.map((text) => entryOf(flag, text)))
  return oneValue(flag, texts.at(-1) ?? '')
}

/** Names of an enum have no commas, and JSON may be a whole list. */
function elementsOf(flag: FieldFlag, text: string): readonly unknown[] {
  if (flag.field.enum !== undefined) return text.split(',').map((name) => oneValue(flag, name.trim()))
  return [oneValue(flag, text)].flat()
}

function entryOf(flag: FieldFlag, text: string): readonly [string, unknown] {
  const at = text.indexOf('=')
  if (at < 1) throw new UsageError(`--${flag.name} needs key=value, not "${text}"`)
  return [text.slice(0, at), oneValue(flag, text.slice(at + 1))]
}

function oneValue(flag: FieldFlag, text: string): unknown {
  const { field } = flag
  if (field.enum !== undefined) return enumValue(flag, field.enum, text)
  if (field.message !== undefined) return messageValue(flag, field.message, text)
  if (field.scalar === ScalarType.STRING) return textOrFile(flag, text)
  if (field.scalar === ScalarType.BOOL) return booleanOf(flag, text)
  if (!/^-?\d+$/.test(text)) throw new UsageError(`--${flag.name} needs a whole number, not "${text}"`)
  return text
}

function booleanOf({ name }: FieldFlag, text: string): boolean {
  if (text !== 'true' && text !== 'false') throw new UsageError(`--${name} is true or false, not "${text}"`)
  return text === 'true'
}

function textOrFile({ name }: FieldFlag, text: string): string {
  if (!text.startsWith('@')) return text
  if (text.startsWith('@@')) return text.slice(1)
  try {
    return readFileSync(text.slice(1), 'utf8').trimEnd()
  } catch (cause) {
    const { code = 'no file' } = cause as NodeJS.ErrnoException // a cast: the file system throws no other errors
    throw new UsageError(`--${name}: ${text.slice(1)} cannot be read (${code})`, { cause })
  }
}

function enumValue({ name }: FieldFlag, desc: DescEnum, text: string): string {
  const wanted = text.toLowerCase().replaceAll('-', '_')
  const found = desc.values.find((value) => value.name.toLowerCase() === wanted || shortName(desc, value.name, value.number) === wanted)
  if (found !== undefined) return found.name
  const near = nearestName(wanted, namesOf(desc))
  const all = desc.values.length > shownNames ? '' : `: use ${namesOf(desc).join(', ')}`
  throw new UsageError(`--${name} cannot be "${text}"${near === undefined ? all : `: did you mean ${near}?`}`)
}

const unitSeconds: Readonly<Record<string, number>> = { s: 1, m: 60, h: 3_600, d: 86_400 }

function messageValue(flag: FieldFlag, { typeName }: DescMessage, text: string): unknown {
  if (typeName === 'google.protobuf.Timestamp') return timeOf(flag, text)
  if (typeName === 'google.protobuf.Duration') return durationOf(flag, text)
  try {
    return JSON.parse(textOrFile(flag, text))
  } catch (error) {
    if (error instanceof SyntaxError) throw new UsageError(`--${flag.name} needs JSON, or @ and the name of a file with JSON`, { cause: error })
    throw error
  }
}

function timeOf({ name }: FieldFlag, text: string): string {
  if (!/^\d{4}-\d\d-\d\d/.test(text) || Number.isNaN(Date.parse(text)))
    throw new UsageError(`--${name} needs a time such as 2027-01-31T12:00:00Z, not "${text}"`)
  return new Date(text).toISOString()
}

function durationOf({ name }: FieldFlag, text: string): string {
  const [, count, unit = ''] = /^(\d{1,9})([smhd])$/.exec(text) ?? []
  if (count === undefined) throw new UsageError(`--${name} needs a duration such as 90m, 12h or 7d, not "${text}"`)
  return `${Number(count) * (unitSeconds[unit] ?? 1)}s`
}

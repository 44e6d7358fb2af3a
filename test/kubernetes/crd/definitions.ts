import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { parse, parseAllDocuments } from 'yaml'
import type { CustomResourceDefinition } from '../../../src/kubernetes/crd/definitions.ts'
import type { StructuralSchema } from '../../../src/kubernetes/crd/structural-schema.ts'

const root = join(import.meta.dirname, '..', '..', '..')

/** The files of crds/, by name. */
export const definitionFiles: ReadonlyMap<string, string> = new Map(
  readdirSync(join(root, 'crds'))
    .filter((name) => name.endsWith('.yaml'))
    .map((name) => [name, readFileSync(join(root, 'crds', name), 'utf8')]),
)

/** The definitions, by kind. */
export const definitions: ReadonlyMap<string, CustomResourceDefinition> = new Map(
  [...definitionFiles.values()].map((text) => parse(text) as CustomResourceDefinition).map((definition) => [definition.spec.names.kind, definition]),
)

/** The documents of a YAML file of the repository. */
export function documentsOf(path: string): readonly Readonly<Record<string, unknown>>[] {
  return parseAllDocuments(readFileSync(join(root, path), 'utf8')).map((document) => document.toJS() as Record<string, unknown>)
}

/** Returns the definition of a kind. Throws if there is none. */
export function definitionOf(kind: string): CustomResourceDefinition {
  const found = definitions.get(kind)
  if (found === undefined) throw new Error(`no definition of ${kind}`)
  return found
}

/** The schema of a kind's objects. */
export function schemaOf(kind: string): StructuralSchema {
  return definitionOf(kind).spec.versions[0].schema.openAPIV3Schema
}

/** A place in a schema: names of fields, `[]` for the items of a list, `{}` for the values of a map. */
export type Place = readonly string[]

/** `spec.customOverlay.accounts.users[].uid`; empty for the object itself. */
export function placeName(place: Place): string {
  return place.reduce((text, step) => (step === '[]' || step === '{}' ? text + step : text === '' ? step : `${text}.${step}`), '')
}

/** Yields every schema in a schema with its place, itself first. */
export function* schemasIn(schema: StructuralSchema, place: Place = []): Generator<readonly [Place, StructuralSchema]> {
  yield [place, schema]
  for (const [name, field] of Object.entries(schema.properties ?? {})) yield* schemasIn(field, [...place, name])
  if (schema.items !== undefined) yield* schemasIn(schema.items, [...place, '[]'])
  if (schema.additionalProperties !== undefined) yield* schemasIn(schema.additionalProperties, [...place, '{}'])
}

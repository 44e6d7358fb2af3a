import { catalogueRows } from './catalogue.ts'
import { checksRows } from './checks.ts'
import { contentsRows } from './contents.ts'
import { createRows } from './create.ts'
import { eventRows } from './events.ts'
import { getRows } from './get.ts'
import { growthRows } from './growth.ts'
import { importRows } from './imports.ts'
import { kubeRows } from './kube.ts'
import { libraryRows } from './libraries.ts'
import { mixedRows, readsRows } from './load-shape.ts'
import { registryRows } from './registry.ts'
import type { RowGroup } from './row.ts'
import { sizeRows } from './size.ts'
import { versionRows } from './version-1.ts'

/** All rows, in the order of measurement. Rows that need much memory come last. */
export const groups: readonly RowGroup[] = [
  getRows,
  kubeRows,
  createRows,
  eventRows,
  mixedRows,
  readsRows,
  checksRows,
  versionRows,
  registryRows,
  catalogueRows,
  libraryRows,
  contentsRows,
  importRows,
  sizeRows,
  growthRows,
]

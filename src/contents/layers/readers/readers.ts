import type { Reader } from '../reader.ts'
import { apk } from './apk.ts'
import { dpkg } from './dpkg.ts'
import { go } from './go.ts'
import { java } from './java.ts'
import { npm } from './npm.ts'
import { osRelease } from './os-release.ts'
import { python } from './python.ts'
import { rpm } from './rpm/rpm.ts'

/** All readers. The first one that wants a file reads it. */
export const readers: readonly Reader[] = [osRelease, apk, dpkg, rpm, npm, python, java, go]

import { createRequire } from 'node:module'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { env } from 'node:process'
import packed, { inflate } from '@sparticuz/chromium'
import { chromium, type Browser } from 'playwright-core'

/** Switches for a headless Chromium that runs as root in a container without outside requests. The browser's security rules keep their defaults. */
const switches = ['--no-sandbox', '--no-zygote', '--disable-gpu', '--disable-quic', '--disable-background-networking', '--disable-component-update']

/** The package's archive of libraries that a bare system lacks (NSS, NSPR). */
const libraries = join(dirname(createRequire(import.meta.url).resolve('@sparticuz/chromium')), '../bin/al2023.tar.br')

/** Starts a real Chromium from the package, which needs only a C library. */
export async function startBrowser(): Promise<Browser> {
  const executablePath = await packed.executablePath()
  await inflate(libraries)
  const own = [join(tmpdir(), 'al2023', 'lib'), env['LD_LIBRARY_PATH'] ?? ''].filter((path) => path !== '')
  return await chromium.launch({ executablePath, args: switches, headless: true, env: { ...env, LD_LIBRARY_PATH: own.join(':') } })
}

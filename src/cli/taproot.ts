import { enableCompileCache } from 'node:module'

// Imported after this call, so that compiled code is cached for the next start.
enableCompileCache()
const { main } = await import('./main.ts')
await main(process.argv)

import type { HeaderLines } from './exchange.ts'

/** With every answer that consists of what somebody pushed: a browser takes it for nothing but what its type says, and runs nothing of it. */
export const contentHeaders: HeaderLines = ['X-Content-Type-Options', 'nosniff', 'Content-Security-Policy', 'sandbox']

-- NumPy's .npy files for workers in Lua: the header, and values as C arrays. In C order, of one of the types below.

local ffi = require 'ffi'

ffi.cdef [[
typedef struct _IO_FILE FILE;
FILE *fopen(const char *path, const char *mode);
size_t fread(void *values, size_t size, size_t count, FILE *file);
size_t fwrite(const void *values, size_t size, size_t count, FILE *file);
int fseek(FILE *file, long offset, int whence);
int fclose(FILE *file);
]]

local npy = {}

npy.BYTES = {f4 = 4, f8 = 8, i8 = 8}
local ARRAYS = {f4 = 'float[?]', f8 = 'double[?]', i8 = 'int64_t[?]'}
local MAGIC = '\147NUMPY'

-- What a file has: `kind` (f4, f8 or i8), `shape`, `count` of values, and `offset`, the bytes before the first.
function npy.header(path)
   local file = assert(io.open(path, 'rb'))
   local start = file:read(10)
   if not start or start:sub(1, 6) ~= MAGIC then
      file:close()
      error(path .. ' is not in the format of NumPy')
   end
   local length, offset = start:byte(9) + 256 * start:byte(10), 10
   if start:byte(7) > 1 then  -- the length has two more bytes
      local more = file:read(2)
      length, offset = length + 65536 * more:byte(1) + 16777216 * more:byte(2), 12
   end
   local text = file:read(length)
   file:close()
   local kind = text:match("'descr': '<(%w%d)'")
   if not npy.BYTES[kind] or not text:find("'fortran_order': False", 1, true) then
      error(path .. ' has values of another type or order: ' .. text)
   end
   local shape, count = {}, 1
   for side in text:match("'shape': %(([^)]*)%)"):gmatch('%d+') do
      shape[#shape + 1] = tonumber(side)
      count = count * tonumber(side)
   end
   return {kind = kind, shape = shape, count = count, offset = offset + length}
end

-- The header, with `values`: a C array, which is freed with its last use.
function npy.read(path)
   local array = npy.header(path)
   array.values = ffi.new(ARRAYS[array.kind], math.max(array.count, 1))
   local file = ffi.C.fopen(path, 'rb')
   assert(file ~= nil, 'cannot open ' .. path)
   ffi.C.fseek(file, array.offset, 0)
   local got = tonumber(ffi.C.fread(array.values, npy.BYTES[array.kind], array.count, file))
   ffi.C.fclose(file)
   assert(got == array.count, path .. ' ends too early')
   return array
end

-- A C array for `count` values of a kind.
function npy.new(kind, count)
   return ffi.new(ARRAYS[kind], math.max(count, 1))
end

local function count_of(shape)
   local count = 1
   for _, side in ipairs(shape) do
      count = count * side
   end
   return count
end

-- Writes {kind, shape, values}, whose values are a C array in C order.
function npy.write(path, array)
   local sides = table.concat(array.shape, ', ') .. (#array.shape == 1 and ',' or '')
   local text = string.format("{'descr': '<%s', 'fortran_order': False, 'shape': (%s), }", array.kind, sides)
   text = text .. string.rep(' ', 63 - (10 + #text) % 64) .. '\n'
   local start = MAGIC .. string.char(1, 0, #text % 256, math.floor(#text / 256)) .. text
   local file = ffi.C.fopen(path, 'wb')
   assert(file ~= nil, 'cannot write ' .. path)
   local count = count_of(array.shape)
   local whole = tonumber(ffi.C.fwrite(start, 1, #start, file)) == #start
      and tonumber(ffi.C.fwrite(array.values, npy.BYTES[array.kind], count, file)) == count
   assert(ffi.C.fclose(file) == 0 and whole, 'cannot write all of ' .. path)
end

return npy

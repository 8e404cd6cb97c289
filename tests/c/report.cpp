// Prints the report of a run as the command does: report DATASET [-w WHERE] [-b COLUMN] SPEC...

#include <iostream>
#include <stead.hpp>
#include <string>

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    try {
        stead::request request;
        for (int i = 2; i < argc; i++) {
            const std::string word = argv[i];
            if (word == "-w" && i + 1 < argc) request.where(argv[++i]);
            else if (word == "-b" && i + 1 < argc) request.by(argv[++i]);
            else request.kernel(word);
        }
        std::cout << stead::dataset::open(argv[1]).run(request).json() << "\n";
    } catch (const stead::error &e) {
        std::cerr << e.what() << "\n";
        return 1;
    }
}
